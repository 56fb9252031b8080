"""The config helpers against the table of what they change (facts of the vendor's adapter, 2023-12)."""

import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.estimator import hooks, keras
from npu_shim.options import table as options
from npu_shim.options.entrances import config_proto

REWRITE = tf.ConfigProto().graph_options.rewrite_options


def settings(proto):
    """Returns what the helpers may change of a ConfigProto."""
    rewrite = proto.graph_options.rewrite_options
    return {
        "optimizers": [optimizer.name for optimizer in rewrite.custom_optimizers],
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
        (config_proto.npu_graph_options, tf.GraphOptions, lambda options: options.optimizer_options.global_jit_level),
        (config_proto.npu_optimizer_options, tf.OptimizerOptions, lambda options: options.global_jit_level),
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
        config = config_proto.npu_run_config_init(other)
        assert isinstance(config, tf.estimator.RunConfig)
        assert settings(config.session_config) == PREPARED


@pytest.mark.parametrize("given", [None, (), ("a hook",), "hooks"])
def test_what_is_no_list_of_hooks_or_callbacks_becomes_a_new_one(given):
    (hook,) = hooks.npu_hooks_append(hooks_list=given)
    (callback,) = keras.npu_callbacks_append(callbacks_list=given)
    assert isinstance(hook, hooks.NPUBroadcastGlobalVariablesHook)
    assert isinstance(callback, keras.NPUBroadcastGlobalVariablesCallback)


ERRORS = {"INVALID_ARGUMENT": tf.errors.InvalidArgumentError, "INTERNAL": tf.errors.InternalError}
LIMITED = [option for option in options.parameter_keys().values() if option.accepted or option.minimum is not None]


@pytest.mark.parametrize("option", LIMITED, ids=lambda option: option.name)
def test_a_wrong_value_of_a_key_is_the_error_of_the_first_run_and_of_nothing_before_it(patched, option):
    config = sessions.config(**{option.name: "no such value" if option.field == "s" else -7})
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        with tf.Session(config=config) as session:  # filling the proto and opening the session raise nothing
            with pytest.raises(ERRORS[option.code], match=option.name):
                session.run(x + 1.0, {x: 1.0})
        with tf.Session(config=sessions.config(no_such_key="x")) as session:
            assert session.run(x + 1.0, {x: 1.0}) == 2.0


@pytest.mark.parametrize(("field", "value"), [("b", True), ("i", 1), ("f", 1.0)])
def test_a_value_in_the_wrong_field_is_an_error(patched, field, value):
    config = sessions.config()
    setattr(config_proto.find_npu_optimizer(config).parameter_map["precision_mode"], field, value)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [])
        said = "precision_mode: written to field '%s', expected field 's'" % field
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
            session.run(x + 1.0, {x: 1.0})
