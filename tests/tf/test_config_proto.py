import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from npu_shim.options.entrances import config_proto  # noqa: E402


def with_entry(**fields):
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "NpuOptimizer"
    for key, (field, value) in fields.items():
        setattr(entry.parameter_map[key], field, value)
    return config


def test_prepare_without_entry():
    config = tf.ConfigProto(allow_soft_placement=False, log_device_placement=True)
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_2
    config_proto.apply_bridge_settings(config)
    rewrite = config.graph_options.rewrite_options
    assert [entry.name for entry in rewrite.custom_optimizers] == ["NpuOptimizer"]
    assert not rewrite.custom_optimizers[0].parameter_map
    assert config.allow_soft_placement
    assert not config.log_device_placement
    assert rewrite.remapping == rewrite.OFF
    assert rewrite.memory_optimization == rewrite.OFF == rewrite.MANUAL
    assert config.graph_options.optimizer_options.global_jit_level == tf.OptimizerOptions.OFF


def test_prepare_with_entry_leaves_memory_optimization_and_the_entry():
    config = with_entry(precision_mode=("s", b"force_fp16"))
    config_proto.apply_bridge_settings(config)
    rewrite = config.graph_options.rewrite_options
    assert len(rewrite.custom_optimizers) == 1
    assert rewrite.memory_optimization == rewrite.DEFAULT_MEM_OPT
    assert rewrite.remapping == rewrite.OFF
    assert config_proto.read(config) == {"precision_mode": "force_fp16"}


def test_prepare_keeps_what_is_not_its_own():
    config = with_entry()
    config.graph_options.rewrite_options.custom_optimizers.add().name = "Other"
    config.gpu_options.allow_growth = True
    config_proto.apply_bridge_settings(config)
    once = config.SerializeToString(deterministic=True)
    config_proto.apply_bridge_settings(config)
    assert config.SerializeToString(deterministic=True) == once
    assert config.gpu_options.allow_growth
    assert [e.name for e in config.graph_options.rewrite_options.custom_optimizers] == ["NpuOptimizer", "Other"]


def test_for_session_is_a_copy_with_one_entry_and_what_the_hook_needs():
    config = with_entry(precision_mode=("s", b"force_fp16"))
    rewrite = config.graph_options.rewrite_options
    rewrite.custom_optimizers.add().name = "Other"
    rewrite.custom_optimizers.add().name = "NpuOptimizer"
    rewrite.disable_meta_optimizer = True
    rewrite.meta_optimizer_timeout_ms = 1
    config.graph_options.place_pruned_graph = True
    before = config.SerializeToString(deterministic=True)
    copy = config_proto.for_session(config)
    assert config.SerializeToString(deterministic=True) == before
    rewrite = copy.graph_options.rewrite_options
    assert [entry.name for entry in rewrite.custom_optimizers] == ["NpuOptimizer", "Other"]
    assert config_proto.read(copy) == {"precision_mode": "force_fp16"}
    assert rewrite.meta_optimizer_iterations == rewrite.ONE
    assert rewrite.min_graph_nodes == -1
    assert not rewrite.disable_meta_optimizer
    assert rewrite.meta_optimizer_timeout_ms == -1
    assert not copy.graph_options.place_pruned_graph
    again = config_proto.for_session(copy)
    assert again.SerializeToString(deterministic=True) == copy.SerializeToString(deterministic=True)


def test_where_nothing_is_lowered_the_optimizers_run_as_the_config_has_them():
    rewrite = config_proto.for_session(with_entry(), as_given=True).graph_options.rewrite_options
    assert (rewrite.meta_optimizer_iterations, rewrite.min_graph_nodes) == (rewrite.DEFAULT_NUM_ITERS, -1)


def test_of_several_entries_the_last_value_of_an_option_holds():
    config = config_proto.npu_config_proto()  # scripts add a second entry to it
    for values in ({"precision_mode": b"force_fp16", "job": b"one"}, {"precision_mode": b"allow_mix_precision"}):
        entry = config.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = "NpuOptimizer"
        for name, value in values.items():
            entry.parameter_map[name].s = value
    assert len(config.graph_options.rewrite_options.custom_optimizers) == 3
    before = config.SerializeToString(deterministic=True)
    expected = {"precision_mode": "allow_mix_precision", "job": "one"}
    assert config_proto.read(config) == expected
    for_session = config_proto.for_session(config, {"precision_mode": "force_fp32"})  # holds where the script says none
    for completed in (for_session, config_proto.with_values(config, {})):
        assert [entry.name for entry in completed.graph_options.rewrite_options.custom_optimizers] == ["NpuOptimizer"]
        assert config_proto.read(completed) == expected
    assert config_proto.read(config_proto.with_values(config, {"job": "two"})) == {**expected, "job": "two"}
    assert config.SerializeToString(deterministic=True) == before


def test_for_session_without_entry_adds_one():
    config = tf.ConfigProto()
    assert config_proto.find_npu_optimizer(config_proto.for_session(config)) is not None
    assert config == tf.ConfigProto()


def test_npu_config_proto_returns_the_same_object_or_a_new_one():
    config = tf.ConfigProto(inter_op_parallelism_threads=3)
    assert config_proto.npu_config_proto(config) is config
    assert config.inter_op_parallelism_threads == 3
    for other in (None, "text", {"allow_soft_placement": False}):
        completed = config_proto.npu_config_proto(config_proto=other)
        assert isinstance(completed, tf.ConfigProto)
        assert config_proto.find_npu_optimizer(completed) is not None


def test_npu_graph_and_optimizer_options_only_turn_the_jit_off():
    graph = tf.GraphOptions(enable_bfloat16_sendrecv=True)
    graph.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    assert config_proto.npu_graph_options(graph_options=graph) is graph
    assert graph.enable_bfloat16_sendrecv
    assert graph.optimizer_options.global_jit_level == tf.OptimizerOptions.OFF
    assert not graph.rewrite_options.custom_optimizers
    optimizer = tf.OptimizerOptions(do_function_inlining=True)
    assert config_proto.npu_optimizer_options(optimizer_options=optimizer) is optimizer
    assert optimizer.do_function_inlining
    assert config_proto.npu_graph_options().optimizer_options.global_jit_level == tf.OptimizerOptions.OFF
    assert config_proto.npu_optimizer_options("x").global_jit_level == tf.OptimizerOptions.OFF


def test_npu_run_config_init():
    session_config = tf.ConfigProto()
    run_config = tf.estimator.RunConfig(session_config=session_config)
    assert config_proto.npu_run_config_init(run_config=run_config) is run_config
    assert run_config.session_config is session_config
    assert config_proto.find_npu_optimizer(session_config) is not None
    for other in (None, "text"):
        completed = config_proto.npu_run_config_init(other)
        assert type(completed) is tf.estimator.RunConfig
        assert config_proto.find_npu_optimizer(completed.session_config) is not None


def test_read():
    assert config_proto.read(tf.ConfigProto()) == {}
    config = with_entry(
        precision_mode=("b", True),
        graph_run_mode=("i", 0),
        use_off_line=("b", True),
        dump_step=("s", b"0|5"),
        what=("i", 1),
    )
    config_proto.find_npu_optimizer(config).parameter_map["modify_mixlist"].SetInParent()  # a key without a value
    assert config_proto.read(config) == {
        "precision_mode": "",  # and a problem of its own, see options.Misplaced
        "graph_run_mode": 0,
        "use_off_line": True,
        "dump_step": "0|5",
        "modify_mixlist": "",
    }


def test_what_is_written_is_read():
    values = {"precision_mode": "force_fp16", "graph_run_mode": 0, "hcom_parallel": False, "soc_config": "Ascend910ä"}
    config = with_entry(precision_mode=("b", True))
    entry = config_proto.find_npu_optimizer(config)
    config_proto.write(entry, values)
    assert config_proto.read(config) == values
    config_proto.write(entry, {"graph_memory_max_size": 1024, "graph_run_mode": np.int64(1)})
    assert config_proto.read(config) == dict(values, graph_memory_max_size="1024", graph_run_mode=1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("precision_mode", True, "precision_mode must be str, got bool True"),
        ("precision_mode", ["x"], "precision_mode must be str, got list"),
        ("hcom_parallel", "yes", "hcom_parallel must be bool, got str 'yes'"),
        ("graph_run_mode", 1.5, "graph_run_mode must be int, got float"),
        ("graph_run_mode", 2**70, "graph_run_mode must be int, got int"),
    ],
)
def test_a_value_of_another_type_is_named(name, value, words):
    entry = config_proto.find_npu_optimizer(with_entry())
    with pytest.raises(TypeError) as caught:
        config_proto.write(entry, {name: value})
    assert str(caught.value).startswith("npu_shim: " + words)


def test_session_runs_with_both():
    with tf.Graph().as_default():
        y = tf.constant([1.0, 2.0]) * 3.0
        with tf.Session(config=config_proto.for_session(config_proto.npu_config_proto())) as session:
            np.testing.assert_array_equal(session.run(y), [3.0, 6.0])
