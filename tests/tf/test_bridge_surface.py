"""What imports, and what importing npu_init does. Each script runs in a process of its own: the import is for good."""

import json
import shlex

import forked
import pytest

# every name that the vendor's star import gives (2023-12 and 2026-07)
STAR = [
    "NPURunConfig",
    "ProfilingConfig",
    "MemoryConfig",
    "DumpConfig",
    "DynamicInputConfig",
    "decorator_tf_session",
    "NPUEstimator",
    "NPUEstimatorSpec",
    "NPUCheckpointSaverHook",
    "NPUOutputTensorHook",
    "NPUBroadcastGlobalVariablesHook",
    "SetIterationsVarHook",
    "TellMeStepOrLossHook",
    "NPUBroadcastGlobalVariablesCallback",
    "NPUDistributedOptimizer",
    "KerasDistributeOptimizer",
    "npu_distributed_optimizer_wrapper",
    "NPUOptimizer",
    "npu_allreduce",
    "NPULossScaleOptimizer",
    "FixedLossScaleManager",
    "ExponentialUpdateLossScaleManager",
    "npu_ops",
    "npu_rnn",
    "npu_scope",
    "keras_to_npu",
    "npu_strategy",
    "util",
    "npu_plugin",
    "hccl_ops",
    "npu_unary_ops",
    "npu_embedding",
    "profiler",
    "npu_cpu_ops",
    "scoped_graph_manager",
    "config_pb2",
    "rewriter_config_pb2",
    "RewriterConfig",
    "session",
    "session_run_hook",
    "backend",
    "tf",
    "os",
    "create_group",
    "destroy_group",
    "get_rank_size",
    "get_local_rank_size",
    "get_rank_id",
    "get_local_rank_id",
    "get_world_rank_from_group_rank",
    "get_group_rank_from_world_rank",
    "set_split_strategy_by_idx",
    "set_split_strategy_by_size",
    "experimental_options",
    "npu_hooks_append",
    "npu_callbacks_append",
    "npu_config_proto",
    "npu_graph_options",
    "npu_optimizer_options",
    "npu_run_config_init",
    "set_keras_session_npu_config",
    "init_resource",
    "shutdown_resource",
    "close_session",
    "get_npu_rank_id",
    "get_npu_local_rank_id",
    "get_npu_rank_size",
    "get_npu_local_rank_size",
    "NpuEmptyHook",
    "npu_keras_optimizer",
    "npu_tf_optimizer",
    "npu_clear_session",
    "npu_session_config_init",
]

MODULES = [
    "npu_bridge",
    "npu_bridge.npu_init",
    "npu_bridge.hccl_init",
    "npu_bridge.convert_tf2npu.main",
    "npu_bridge.helper.helper",
    "npu_bridge.tf_adapter",
    "npu_bridge.estimator",
    "npu_bridge.estimator.npu_ops",
    "npu_bridge.estimator.npu_unary_ops",
    "npu_bridge.estimator.npu_aicore_ops",
    "npu_bridge.estimator.npu",
    "npu_bridge.estimator.npu.keras_to_npu",
    "npu_bridge.estimator.npu.npu_callbacks",
    "npu_bridge.estimator.npu.npu_common",
    "npu_bridge.estimator.npu.npu_compile",
    "npu_bridge.estimator.npu.npu_config",
    "npu_bridge.estimator.npu.npu_convert_dropout",
    "npu_bridge.estimator.npu.npu_decorator",
    "npu_bridge.estimator.npu.npu_dynamic_rnn",
    "npu_bridge.estimator.npu.npu_estimator",
    "npu_bridge.estimator.npu.npu_hook",
    "npu_bridge.estimator.npu.npu_loss_scale_manager",
    "npu_bridge.estimator.npu.npu_loss_scale_optimizer",
    "npu_bridge.estimator.npu.npu_optimizer",
    "npu_bridge.estimator.npu.npu_plugin",
    "npu_bridge.estimator.npu.npu_rnn",
    "npu_bridge.estimator.npu.npu_saver",
    "npu_bridge.estimator.npu.npu_scope",
    "npu_bridge.estimator.npu.npu_strategy",
    "npu_bridge.estimator.npu.util",
    "npu_bridge.hccl.hccl_ops",
    "npu_bridge.image.image_ops",
    "npu_bridge.npu_cpu.npu_cpu_ops",
    "npu_bridge.npu_cpu.lru_cache",
    "npu_bridge.tbe.npu_cube_ops",
    "npu_bridge.tbe.npu_vector_ops",
    "npu_bridge.experimental",
    "npu_bridge.experimental.dataset_ops",
    "npu_bridge.experimental.file_constant",
    "npu_bridge.experimental.get_shape",
    "npu_bridge.experimental.hccl",
    "npu_bridge.experimental.image",
    "npu_bridge.embedding",
    "npu_bridge.embedding.embedding_optimizer",
    "npu_bridge.embedding.embedding_resource",
    "npu_bridge.embedding.embedding_service",
    "npu_bridge.embedding.embedding_table_map_policy",
    "npu_bridge.embedding.tf_path",
    "npu_bridge.profiler.profiler",
    "npu_bridge.scoped_graph_manager",
    "hccl",
    "hccl.manage.api",
    "hccl.split.api",
]

# "name" or "module:name" -> what the vendor's signature is, defaults included
SIGNATURES = {
    "npu_ops.dropout": "x keep_prob noise_shape=None seed=None name=None",
    "npu_ops.LARS": "inputs_w inputs_g weight_decay hyperpara=0.001 epsilon=1e-05 name=None",
    "npu_ops.LARSV2": (
        "input_weight input_grad weight_decay learning_rate hyperpara=0.001 epsilon=1e-05 use_clip=False name=None"
    ),
    "npu_ops.initialize_system": "name=None",
    "npu_ops.shutdown_system": "name=None",
    "npu_ops.basic_lstm_cell": "x h c w b keep_prob forget_bias state_is_tuple activation name=None",
    "npu_ops.adam_apply_one_assign": "input0 input1 input2 input3 input4 mul0_x mul1_x mul2_x mul3_x add2_y name=None",
    "npu_ops.adam_apply_one_with_decay_assign": (
        "input0 input1 input2 input3 input4 mul0_x mul1_x mul2_x mul3_x mul4_x add2_y name=None"
    ),
    "npu_ops.scatter_elements": "data indices updates axis=0 name=None",
    "npu_ops.k_means_centroids": "x y sum_square_y sum_square_x use_actual_distance=False name=None",
    "npu_unary_ops.gelu": "x name=None",
    "npu_bridge.estimator.npu_aicore_ops:npu_aicore_ops.fast_gelu": "x name=None",
    "npu_bridge.estimator.npu_aicore_ops:centralization": "x axes name=None",
    "npu_bridge.estimator.npu_aicore_ops:prelu": "x weight",
    "npu_bridge.estimator.npu_aicore_ops:dropout_v3": "x keep_prob noise_shape=None seed=None name=None",
    "npu_bridge.estimator.npu_aicore_ops:layer_norm": (
        "x gamma beta begin_norm_axis=0 begin_params_axis=0 epsilon=1e-07 name=None"
    ),
    "npu_bridge.tbe.npu_vector_ops:lamb_apply_optimizer_assign": (
        "input0 input1 input2 input3 mul0_x mul1_x mul2_x mul3_x add2_y steps do_use_weight weight_decay_rate name=None"
    ),
    "npu_bridge.tbe.npu_vector_ops:lamb_apply_weight_assign": "input0 input1 input2 input3 input4 name=None",
    "npu_bridge.tbe.npu_cube_ops:deformable_conv2d": (
        "x filter offsets strides=None pads=None data_format='NHWC' dilations=(1, 1, 1, 1) groups=1 "
        "deformable_groups=1 modulated=True name=None"
    ),
    "npu_bridge.image.image_ops:decode_and_resize_jpeg": "image size",
    "npu_bridge.image.image_ops:decode_and_crop_and_resize_jpeg": "image crop_size size",
    "npu_bridge.npu_cpu.npu_cpu_ops:RandomChoiceWithMask": "x count seed=0 seed2=0",
    "npu_bridge.npu_cpu.npu_cpu_ops:dense_image_warp": "image flow name=None",
    "npu_bridge.experimental.get_shape:getshape": "x name=None",
    "npu_bridge.experimental.file_constant:file_constant": "shape dtype file_path=None file_id=None name=None",
    "npu_bridge.experimental.dataset_ops:map_and_batch": (
        "map_func batch_size num_parallel_batches=None drop_remainder=False num_parallel_calls=None "
        "num_parallel_npu=28 output_device='cpu'"
    ),
    "npu_bridge.estimator.npu.npu_dynamic_rnn:DynamicRNN": (
        "hidden_size dtype cell_type='LSTM' direction='UNIDIRECTIONAL' cell_depth=1 use_peephole=False keep_prob=1.0 "
        "cell_clip=-1.0 num_proj=0 time_major=True activation='tanh' forget_bias=0.0 is_training=True"
    ),
    "npu_bridge.estimator.npu.npu_dynamic_rnn:DynamicGRUV2": (
        "hidden_size dtype direction='UNIDIRECTIONAL' cell_depth=1 keep_prob=1.0 cell_clip=-1.0 num_proj=0 "
        "time_major=True activation='tanh' gate_order='zrh' reset_after=True is_training=True"
    ),
    "npu_bridge.estimator.npu.npu_dynamic_rnn:DynamicRNN.call": (
        "self x seq_length=None init_h=None init_c=None weight=None bias=None"
    ),
    "npu_bridge.estimator.npu.npu_dynamic_rnn:DynamicGRUV2.call": "self x seq_length=None init_h=None",
    "npu_rnn.npu_dynamic_rnn": "cell inputs initial_state=None dtype=None sequence_length=None scope=None",
    "hccl_ops.allreduce": "tensor reduction fusion=1 fusion_id=-1 group='hccl_world_group'",
    "hccl_ops.allgather": "tensor rank_size fusion=0 fusion_id=-1 group='hccl_world_group'",
    "hccl_ops.broadcast": "tensor root_rank fusion=2 fusion_id=0 group='hccl_world_group'",
    "hccl_ops.reduce": "tensor reduction root_rank fusion=0 fusion_id=-1 group='hccl_world_group'",
    "hccl_ops.reduce_scatter": "tensor reduction rank_size fusion=0 fusion_id=-1 group='hccl_world_group'",
    "hccl_ops.all_to_all_v": (
        "send_data send_counts send_displacements recv_counts recv_displacements group='hccl_world_group'"
    ),
    "hccl_ops.all_to_all_v_c": "send_data send_count_matrix rank fusion=0 fusion_id=-1 group='hccl_world_group'",
    "create_group": "group rank_num rank_ids",
    "destroy_group": "group",
    "get_rank_size": "group='hccl_world_group'",
    "get_rank_id": "group='hccl_world_group'",
    "get_local_rank_size": "group='hccl_world_group'",
    "get_local_rank_id": "group='hccl_world_group'",
    "get_world_rank_from_group_rank": "group group_rank_id",
    "get_group_rank_from_world_rank": "world_rank_id group",
    "set_split_strategy_by_idx": "idxList group='hccl_world_group'",
    "set_split_strategy_by_size": "dataSizeList group='hccl_world_group'",
    "NPUOptimizer": (
        "opt loss_scale_manager=None is_distributed=False is_loss_scale=False is_tailing_optimization=False name=None"
    ),
    "NPUDistributedOptimizer": "optimizer is_weight_update_sharding=False name=None",
    "KerasDistributeOptimizer": "optimizer name='NpuKerasOptimizer' **kwargs",
    "npu_distributed_optimizer_wrapper": "optimizer",
    "npu_allreduce": "values reduction='mean' fusion=1 fusion_id=-1 group='hccl_world_group'",
    "npu_tf_optimizer": "opt",
    "npu_strategy.NPUStrategy": "device='/cpu:0'",
    "ProfilingConfig": "enable_profiling=False profiling_options=None",
    "MemoryConfig": (
        "atomic_clean_policy=0 static_memory_policy=0 memory_optimization_policy=None variable_use_1g_huge_page=0"
    ),
    "DumpConfig": (
        "enable_dump=False dump_path=None dump_step=None dump_mode='output' enable_dump_debug=False "
        "dump_debug_mode='all' dump_data='tensor' dump_layer=None"
    ),
    "DynamicInputConfig": "input_shape dynamic_dims dynamic_node_type compile_hybrid_mode=None",
    "npu_bridge.estimator.npu.npu_config:GraphMemoryOptimizeConfig": "recompute=None graph_slice=None",
    "npu_bridge.estimator.npu.npu_config:ExperimentalConfig": (
        "logical_device_cluster_deploy_mode='LB' logical_device_id=None model_deploy_mode=None "
        "model_deploy_devicelist=None graph_memory_optimize_config=None enable_graph_parallel=None "
        "graph_parallel_option_path=None graph_compiler_cache_dir=None resource_config_path=None "
        "accelerate_train_mode=None"
    ),
    "NPUOutputTensorHook": "tensors dependencies=None output_fn=None output_every_n_steps=0",
    "NPUBroadcastGlobalVariablesHook": "root_rank=None index=None",
    "TellMeStepOrLossHook": "step=None total_step=None loss=None final_loss=None",
    "NPUBroadcastGlobalVariablesCallback": "root_rank",
    "util.set_iteration_per_loop": "sess train_op iterations_per_loop=1",
    "util.IterationPerLoop.load_iteration_per_loop_var": "self sess iterations_per_loop=1",
    "util.keep_tensors_dtypes": "graph input_tensors",
    "util.set_graph_exec_config": (
        "fetch dynamic_input=False dynamic_graph_execute_mode='dynamic_execute' dynamic_inputs_shape_range=None "
        "is_train_graph=False"
    ),
    "util.set_op_tensor_max_range": "tensor max_shape",
    "util.set_op_input_tensor_multi_dims": "tensor input_shape input_dims",
    "util.variable_initializer_in_host": "var_list",
    "util.get_ranksize": "",
    "util.fair_division": "inputs number",
    "util.get_value": "key def_value=None",
    "util.check_positive_integer": "value name",
    "keras_to_npu.model_to_npu_estimator": (
        "keras_model=None keras_model_path=None custom_objects=None model_dir=None checkpoint_format='saver' "
        "config=None job_start_file=''"
    ),
    "npu_plugin.npu_resource_init": (
        "graph_run_mode=1 op_debug_level=0 enable_profiling=False profiling_options=None precision_mode=None "
        "enable_scope_fusion_passes=None enable_exception_dump=2 aoe_mode=None work_path=None "
        "op_compiler_cache_mode=None op_compiler_cache_dir=None debug_dir=None hcom_multi_mode=False "
        "distribute_config=None aoe_config_file=None precision_mode_v2=None **others"
    ),
    "npu_scope.npu_weight_prefetch_scope": "buffer_pool_id=0 buffer_pool_size=536870912",
    "npu_scope.npu_stage_scope": "stage",
    "npu_scope.op_specified_engine_scope": "engine_name kernel_lib_name",
    "npu_scope.npu_graph_slice_scope": "slice_num=None",
    "npu_scope.limit_core_num_scope": "op_aicore_num='0' op_vectorore_num='0'",
    "npu_hooks_append": "hooks_list=()",
    "npu_callbacks_append": "callbacks_list=()",
    "npu_config_proto": "config_proto=None",
    "npu_graph_options": "graph_options=None",
    "npu_run_config_init": "run_config=None",
    "set_keras_session_npu_config": "config=None",
    "npu_clear_session": "config=None",
    "npu_session_config_init": "session_config=None",
    "init_resource": "config=None",
    "close_session": "sess",
    "decorator_tf_session": "func",
}


def run(folder, script, *arguments):
    """Runs a script and returns what it prints last, read as JSON."""
    (folder / "script.py").write_text(script)
    words = " ".join(map(shlex.quote, arguments))
    [done] = forked.run([("python script.py " + words, folder)], timeout=300)
    assert done.status == 0, done.output[-2000:]
    return json.loads(done.output.splitlines()[-1])


SURFACE = """
import importlib, inspect, json, sys
star, modules, signatures = [json.loads(each) for each in sys.argv[1:]]
failed = []
for name in modules:
    try:
        importlib.import_module(name)
    except Exception as reason:
        failed.append((name, repr(reason)))
scope = {}
exec("from npu_bridge.npu_init import *", scope)
del scope["__builtins__"]
def shown(parameter):
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    return stars + parameter.name + ("" if parameter.default is parameter.empty else "=%r" % (parameter.default,))
def arguments(path):
    module, _, name = path.rpartition(":")
    found, *parts = name.split(".")
    found = getattr(importlib.import_module(module), found) if module else scope[found]
    for part in parts:
        found = getattr(found, part)
    return " ".join(map(shown, inspect.signature(found).parameters.values()))
from npu_shim.bridge.ops import exposed as bridge_imports
def starred(module):
    names = {}
    exec("from npu_bridge.estimator.npu.%s import *" % module, names)
    return [name for name in ("time", "os", "tf", "FixedLossScaleManager", "RewriterConfig", "expose") if name in names]
print(json.dumps({
    "failed": failed,
    "missing": sorted(set(star) - set(scope)),
    "extra": sorted(set(scope) - set(star)),
    "signatures": {path: arguments(path) for path in signatures},
    "unexposed": sorted(
        module + "." + name for module, names in bridge_imports.EXPOSED.items() for name in names.split()
        if not hasattr(importlib.import_module("npu_bridge." + module), name)
    ),
    "starred": starred("npu_estimator") + starred("npu_loss_scale_optimizer"),
    "tf": scope["tf"].__name__,
    "eager": scope["tf"].executing_eagerly(),
    "options": scope["experimental_options"],
}))
"""


@pytest.fixture(scope="module")
def surface(tmp_path_factory):
    named = (STAR, MODULES, list(SIGNATURES))
    return run(tmp_path_factory.mktemp("surface"), SURFACE, *map(json.dumps, named))


def test_every_module_imports(surface):
    assert surface["failed"] == []


def test_the_star_import_gives_every_name_and_no_other(surface):
    assert surface["missing"] == []
    assert surface["extra"] == []


def test_signatures_are_the_vendors(surface):
    assert surface["signatures"] == SIGNATURES


def test_modules_expose_what_the_vendors_import(surface):
    assert surface["unexposed"] == []
    assert surface["starred"] == ["time", "os", "tf", "os", "tf", "FixedLossScaleManager"]


def test_tf_is_tensorflow_1(surface):
    import tensorflow

    assert surface["tf"] == ("tensorflow" if tensorflow.__version__.startswith("1.") else "tensorflow.compat.v1")
    assert surface["eager"] is False


def test_experimental_options(surface):
    options = dict(surface["options"])
    assert options.pop("disable_model_pruning") is False
    assert sorted(options.values()) == [1] * 7


SIDE_EFFECTS = """
import importlib, json
import tensorflow.compat.v1 as tf
plain = tf.Session.__init__
import npu_bridge.estimator.npu.npu_scope, hccl.manage.api
untouched = tf.Session.__init__ is plain
import npu_bridge.npu_init as npu_init
patched = tf.Session.__init__
importlib.reload(npu_init)
again = tf.Session.__init__ is patched
v = tf.get_variable("v", initializer=1.0)
config = tf.ConfigProto()
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    value = float(session.run(v))
import npu_shim
npu_shim.unpatch()
print(json.dumps({
    "untouched": untouched,
    "patched": patched is not plain,
    "again": again,
    "value": value,
    "resource": "Resource" in type(v).__name__,
    "optimizers": [each.name for each in config.graph_options.rewrite_options.custom_optimizers],
    "back": tf.Session.__init__ is plain,
}))
"""


def test_the_import_patches_sessions_once_and_reversibly(tmp_path):
    assert run(tmp_path, SIDE_EFFECTS) == {
        "untouched": True,
        "patched": True,
        "again": True,
        "value": 1.0,
        "resource": False,
        "optimizers": ["NpuOptimizer"],
        "back": True,
    }
