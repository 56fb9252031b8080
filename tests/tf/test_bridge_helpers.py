"""The config helpers against the table of what they change (facts of the vendor's adapter, 2023-12)."""

import pytest
import tensorflow.compat.v1 as tf

from npu_shim import config_proto

REWRITE = tf.ConfigProto().graph_options.rewrite_options


def settings(proto):
    """Returns what the helpers may change of a ConfigProto."""
    rewrite = proto.graph_options.rewrite_options
    return {
        "optimizers": [each.name for each in rewrite.custom_optimizers],
        "memory": rewrite.memory_optimization,
        "remapping": rewrite.remapping,
        "soft": proto.allow_soft_placement,
        "log": proto.log_device_placement,
        "jit": proto.graph_options.optimizer_options.global_jit_level,
    }


PREPARED = {
    "optimizers": ["NpuOptimizer"],
    "memory": REWRITE.OFF,
    "remapping": REWRITE.OFF,
    "soft": True,
    "log": False,
    "jit": tf.OptimizerOptions.OFF,
}


@pytest.mark.parametrize("given", [None, "config", 3, tf.GraphOptions()])
def test_what_is_no_config_becomes_a_new_one(given):
    assert settings(config_proto.npu_config_proto(given)) == PREPARED


def test_a_config_is_changed_in_place():
    mine = tf.ConfigProto(log_device_placement=True, inter_op_parallelism_threads=2)
    mine.graph_options.rewrite_options.memory_optimization = REWRITE.HEURISTICS
    result = config_proto.npu_config_proto(config_proto=mine)
    assert result is mine
    assert settings(mine) == PREPARED
    assert mine.inter_op_parallelism_threads == 2


def test_memory_optimization_stays_where_the_optimizer_was_there():
    mine = tf.ConfigProto()
    mine.graph_options.rewrite_options.custom_optimizers.add().name = "NpuOptimizer"
    mine.graph_options.rewrite_options.memory_optimization = REWRITE.HEURISTICS
    assert settings(config_proto.npu_config_proto(mine)) == {**PREPARED, "memory": REWRITE.HEURISTICS}


def test_twice_is_once():
    once = config_proto.npu_config_proto()
    before = once.SerializeToString(deterministic=True)
    assert config_proto.npu_config_proto(once).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("helper", "kind", "level"),
    [
        (config_proto.npu_graph_options, tf.GraphOptions, lambda made: made.optimizer_options.global_jit_level),
        (config_proto.npu_optimizer_options, tf.OptimizerOptions, lambda made: made.global_jit_level),
    ],
)
def test_the_smaller_helpers_turn_the_jit_off_and_nothing_else(helper, kind, level):
    mine = kind()
    assert helper(mine) is mine
    assert level(mine) == tf.OptimizerOptions.OFF
    assert level(helper(None)) == tf.OptimizerOptions.OFF
    expected = kind()
    (expected if kind is tf.OptimizerOptions else expected.optimizer_options).global_jit_level = tf.OptimizerOptions.OFF
    assert mine == expected


def test_run_config_gets_its_session_config_in_place():
    plain = tf.estimator.RunConfig(save_summary_steps=7)
    assert config_proto.npu_run_config_init(run_config=plain) is plain
    assert settings(plain.session_config) == PREPARED
    assert plain.save_summary_steps == 7
    mine = tf.ConfigProto(intra_op_parallelism_threads=3)
    with_config = config_proto.npu_run_config_init(tf.estimator.RunConfig(session_config=mine))
    assert with_config.session_config.intra_op_parallelism_threads == 3
    assert settings(with_config.session_config) == PREPARED
    for other in (None, "config"):
        made = config_proto.npu_run_config_init(other)
        assert isinstance(made, tf.estimator.RunConfig)
        assert settings(made.session_config) == PREPARED
