"""What imports, and what importing npu_init does. Each script runs in a process of its own: the import is for good."""

import json
import re
import subprocess
import sys

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
    "npu_bridge.experimental.hccl",
    "npu_bridge.embedding",
    "npu_bridge.profiler.profiler",
    "npu_bridge.scoped_graph_manager",
    "hccl",
    "hccl.manage.api",
    "hccl.split.api",
]

# name -> arguments in the vendor's order
SIGNATURES = {
    "npu_ops.dropout": "x keep_prob noise_shape seed name",
    "npu_ops.LARS": "inputs_w inputs_g weight_decay hyperpara epsilon name",
    "npu_ops.initialize_system": "name",
    "npu_unary_ops.gelu": "x name",
    "hccl_ops.allreduce": "tensor reduction fusion fusion_id group",
    "hccl_ops.allgather": "tensor rank_size fusion fusion_id group",
    "hccl_ops.broadcast": "tensor root_rank fusion fusion_id group",
    "hccl_ops.reduce": "tensor reduction root_rank fusion fusion_id group",
    "hccl_ops.reduce_scatter": "tensor reduction rank_size fusion fusion_id group",
    "NPUDistributedOptimizer": "optimizer is_weight_update_sharding name",
    "KerasDistributeOptimizer": "optimizer name kwargs",
    "npu_allreduce": "values reduction fusion fusion_id group",
    "npu_strategy.NPUStrategy": "device",
    "NPUOutputTensorHook": "tensors dependencies output_fn output_every_n_steps",
    "NPUBroadcastGlobalVariablesHook": "root_rank index",
    "TellMeStepOrLossHook": "step total_step loss final_loss",
    "util.set_iteration_per_loop": "sess train_op iterations_per_loop",
    "util.keep_tensors_dtypes": "graph input_tensors",
    "keras_to_npu.model_to_npu_estimator": (
        "keras_model keras_model_path custom_objects model_dir checkpoint_format config job_start_file"
    ),
    "npu_rnn.npu_dynamic_rnn": "cell inputs initial_state dtype sequence_length scope",
    "npu_hooks_append": "hooks_list",
    "npu_callbacks_append": "callbacks_list",
    "init_resource": "config",
    "shutdown_resource": "sess npu_shutdown",
    "npu_scope.limit_core_num_scope": "op_aicore_num op_vectorore_num",
    "create_group": "group rank_num rank_ids",
    "set_split_strategy_by_idx": "idxList group",
}


def run(script, *arguments):
    """Runs a script and returns what it prints last, read as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout.decode().splitlines()[-1])


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
def arguments(path):
    found = scope[path.split(".")[0]]
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return " ".join(inspect.signature(found).parameters)
print(json.dumps({
    "failed": failed,
    "missing": sorted(set(star) - set(scope)),
    "extra": sorted(set(scope) - set(star)),
    "signatures": {path: arguments(path) for path in signatures},
    "tf": scope["tf"].__name__,
    "eager": scope["tf"].executing_eagerly(),
    "options": scope["experimental_options"],
}))
"""


@pytest.fixture(scope="module")
def surface():
    return run(SURFACE, json.dumps(STAR), json.dumps(MODULES), json.dumps(list(SIGNATURES)))


def test_every_module_imports(surface):
    assert surface["failed"] == []


def test_the_star_import_gives_every_name_and_no_other(surface):
    assert surface["missing"] == []
    assert surface["extra"] == []


def test_signatures_are_the_vendors(surface):
    assert surface["signatures"] == SIGNATURES


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


def test_the_import_patches_sessions_once_and_reversibly():
    assert run(SIDE_EFFECTS) == {
        "untouched": True,
        "patched": True,
        "again": True,
        "value": 1.0,
        "resource": True,
        "optimizers": ["NpuOptimizer"],
        "back": True,
    }


# These names in the corpus are the scripts' own: their module `util` (image and file helpers), their function `dropout`
# with is_training, and a TPUEstimator's arguments that the vendor's NPUEstimator refuses as well.
OWN = {"dropout(1 positional, is_training, keep_prob, name)"}
VENDORS_UTIL = {"util.set_iteration_per_loop", "util.set_graph_exec_config", "util.keep_tensors_dtypes"}
TPU_ARGUMENTS = "eval_batch_size"


def test_what_real_scripts_use_resolves(shared):
    done = subprocess.run(
        [sys.executable, str(shared / "corpus" / "check_usage.py"), "--list"], stdout=subprocess.PIPE, timeout=300
    )
    lines = [line.strip() for line in done.stdout.decode().splitlines()]
    found = [re.match(r"\d+ networks  (.+)", line) for line in lines]
    unresolved = [each.group(1) for each in found if each]
    unresolved = [each for each in unresolved if not each.startswith("util.") or each in VENDORS_UTIL]
    assert len(lines) > 6
    assert [each for each in unresolved if each not in OWN and TPU_ARGUMENTS not in each] == []
