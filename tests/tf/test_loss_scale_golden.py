"""The graph ops against the golden traces and against the pure schedule, with and without Grappler."""

import os

import numpy as np
import pytest
import reference_material
import tensorflow.compat.v1 as tf
from loss_scale_golden import COLUMNS, OVERFLOWS, contrib_cases, contrib_rule, experimental_cases, mindspore_cases
from tensorflow.core.protobuf import rewriter_config_pb2

from npu_shim.loss_scale.managers import contrib, schedule
from npu_shim.loss_scale.managers.graph_ops import next_tensors
from npu_shim.loss_scale.managers.managers import ExponentialUpdateLossScaleManager, ScheduledLossScaleManager
from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer

GRAPPLER = {"grappler": False, "no-grappler": True}
NIGHTLY = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
# one of a kind by day: the pure schedule, which the graph ops follow, replays all of them in tests/pure
BY_DAY = (
    "window_3/mindspore-manager", "every_overflow_halves/mindspore-cell", "factor_3_window_2/mindspore-scaler",
    "floor_at_one/mindspore-manager", "upper_bound_float32/mindspore-cell", "a_thousand_overflows/mindspore-manager",
    "overflow_on_window_boundary/mindspore-scaler",
    "bad_steps_accumulate_across_good", "increase_clears_bad_steps", "float32_max_not_exceeded",
    "init_zero_not_rejected", "non_power_of_two_ratios", "incr_every_0_behaves_as_1",
    "short_period", "multiplier_1_1", "multiplier_1_1_constant_folding_off",
)  # fmt: skip


def session_config(disabled):
    config = tf.ConfigProto()
    options = config.graph_options.rewrite_options
    options.disable_meta_optimizer = disabled
    options.min_graph_nodes = -1
    options.constant_folding = rewriter_config_pb2.RewriterConfig.ON
    return config


def now(cases):
    return [case for case in cases if NIGHTLY or case.name in BY_DAY]


@pytest.mark.by_day("contrib_cases-grappler", "experimental_cases-grappler", "experimental_cases-no-grappler")
@pytest.mark.parametrize("grappler", sorted(GRAPPLER))
@pytest.mark.parametrize("supplier", [contrib_cases, experimental_cases])
def test_optimizer_replays_tensorflow_traces(supplier, grappler):
    cases = now(supplier())
    assert len(cases) >= 3
    for case in cases:
        with tf.Graph().as_default(), tf.Session(config=session_config(GRAPPLER[grappler])) as session:
            manager = ScheduledLossScaleManager(case.rule, case.init)
            optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager, on_stuck="ignore")
            w = tf.get_variable("w", initializer=0.0)
            global_step = tf.train.get_or_create_global_step()
            gradient = tf.placeholder(tf.float32, [])
            train = session.make_callable(optimizer.apply_gradients([(gradient, w)], global_step), [gradient])
            assert [v.name for v in tf.global_variables()] == [
                "loss_scale:0",
                "good_steps:0",
                "bad_steps:0",
                "w:0",
                "global_step:0",
            ]
            session.run(tf.global_variables_initializer())
            variables = manager.variables()
            tensors = dict(variables, global_step=global_step, w=w)
            read = session.make_callable([tensors[column].value() for column in case.columns])
            for step, symbol in enumerate(("init", *case.symbols)):
                if step:
                    train(OVERFLOWS.get(symbol, 0.5))
                if step in case.rows:
                    assert [float(v) for v in read()] == case.rows[step], (case.name, step)


@pytest.mark.by_day("grappler")
@pytest.mark.parametrize("grappler", sorted(GRAPPLER))
def test_graph_ops_replay_mindspore_traces(grappler):
    cases = mindspore_cases()
    assert len(cases) == 30
    for case in now(cases):
        states, exhausted = run_in_a_loop(case, session_config(GRAPPLER[grappler]))
        for step, row in case.rows.items():
            assert [COLUMNS[column](states[step]) for column in case.columns] == row, (case.name, step)
        assert exhausted == (case.error is not None), case.name


def run_in_a_loop(case, config):
    """Returns (state after each step, did the last step exhaust the policy), all steps in one session.run."""
    keys = ("loss_scale", "good_steps", "bad_steps", "step", "last_overflow")
    start = schedule.initial_state(case.rule, case.init)
    length = len(case.symbols)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        finite = tf.constant([symbol == "F" for symbol in case.symbols])
        initial = [tf.constant(getattr(start, key), case.rule.dtype if key == "loss_scale" else None) for key in keys]
        arrays = [tf.TensorArray(value.dtype, length, element_shape=[]) for value in initial]

        def body(i, now, arrays, exhausted):
            after = next_tensors(case.rule, dict(zip(keys, now)), finite[i])
            exhausted = after.get("exhausted", exhausted)
            values = [after[key] for key in keys]
            return i + 1, values, [a.write(i, value) for a, value in zip(arrays, values)], exhausted

        _, _, arrays, exhausted = tf.while_loop(
            lambda i, *_: i < length, body, (0, initial, arrays, False), parallel_iterations=1
        )
        columns, exhausted = session.run([[array.stack() for array in arrays], exhausted])
    rows = [dict(zip(keys, row)) for row in zip(*columns)]
    states = [schedule.LossScaleState(case.rule, **row) for row in rows]
    return [start, *states], bool(exhausted)


def mirrored(session, rule):
    """Returns (state, finite) -> (state, exhausted), computed by the graph ops."""
    now = {"loss_scale": tf.placeholder(rule.dtype, [])}
    now.update((key, tf.placeholder(tf.int32, [])) for key in ("good_steps", "bad_steps", "step", "last_overflow"))
    if rule.hysteresis > 1:
        now["hysteresis_left"] = tf.placeholder(tf.int32, [])
    finite = tf.placeholder(tf.bool, [])
    after = next_tensors(rule, now, finite)
    after.setdefault("exhausted", tf.constant(False))
    order, fed = sorted(after), sorted(now)
    call = session.make_callable([after[key] for key in order], [now[key] for key in fed] + [finite])
    field = {"hysteresis_left": "patience"}

    def step(state, is_finite):
        values = dict(zip(order, call(*[getattr(state, field.get(key, key)) for key in fed], is_finite)))
        exhausted = bool(values.pop("exhausted"))
        numbers = {field.get(k, k): v if k == "loss_scale" else int(v) for k, v in values.items()}
        return schedule.LossScaleState(rule, **numbers), exhausted

    return step


@pytest.mark.parametrize("name", sorted(schedule.POLICIES))
def test_graph_ops_follow_the_pure_schedule_on_random_runs(name):
    random = np.random.RandomState(sorted(schedule.POLICIES).index(name))
    for _ in range(4 if NIGHTLY else 2):
        rule = schedule.policy(
            name,
            growth_interval=int(random.randint(0, 5)),
            growth_factor=float(random.choice([2.0, 1.1, 3.0, 1e6])),
            backoff_interval=int(random.randint(0, 4)),
            backoff_factor=float(random.choice([0.5, 0.8, 2.0, 3.0])),
            min_scale=float(random.choice([1.0, 0.01])),
            max_scale=random.choice([None, 1e5, 1e30]),
            hysteresis=int(random.randint(1, 4)),
        )
        with tf.Graph().as_default(), tf.Session(config=session_config(False)) as session:
            step_of = mirrored(session, rule)
            pure = mirror = schedule.initial_state(rule, float(random.choice([1.0, 777.7, 2.0**126])))
            for finite in random.rand(250) < 0.7:
                mirror, _ = step_of(mirror, finite)
                pure = schedule.next_state(pure, bool(finite))
                assert mirror == pure, rule


def test_end_to_end_float16_traces():
    cases = reference_material.table("loss_scale_tf115")["sections"]["contrib_end_to_end_fp16"]["cases"]
    assert len(cases) == 3
    for case in cases:
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=0.5)
            loss = tf.cast(tf.cast(w, tf.float16) * tf.constant(2.0, tf.float16), case["loss_dtype"])
            manager = ScheduledLossScaleManager(contrib_rule(case["params"]), case["params"]["init_loss_scale"])
            optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.0), manager, on_stuck="ignore")
            global_step = tf.train.get_or_create_global_step()
            pairs = optimizer.compute_gradients(loss, [w])
            train_op = optimizer.apply_gradients(pairs, global_step)
            with tf.control_dependencies([train_op]):
                variables = manager.variables()
                after = [variables[k].read_value() for k in ("loss_scale", "good_steps", "bad_steps")]
                after.append(global_step.read_value())
            session.run(tf.global_variables_initializer())
            rows = {row[0]: row[1:] for row in case["trace"]}
            skipped = []
            for step in range(1, case["n_steps"] + 1):
                gradient, *state = session.run([pairs[0][0], *after])
                if step in rows:
                    assert [np.float32(rows[step][0]), *rows[step][1:]] == [gradient, *state], (case["name"], step)
                if not np.isfinite(gradient):
                    skipped.append(step)
            first = case["first_applied_step"]
            assert skipped[: first - 1] == list(range(1, first))
            assert first not in skipped
            assert session.run(optimizer.skipped_steps) == len(skipped)
            assert session.run(optimizer.attempted_steps) == case["n_steps"]


def test_bridge_manager_is_the_ascend_row():
    with tf.Graph().as_default():
        manager = ExponentialUpdateLossScaleManager(2**32, 1000, 2, decr_ratio=0.5)
        rule = schedule.policy("ascend", growth_interval=1000, growth_factor=2, backoff_factor=0.5)
        assert manager.initial_state == schedule.initial_state(rule, 2**32)


def test_contrib_manager_is_the_contrib_row():
    with tf.Graph().as_default():
        manager = contrib.ExponentialUpdateLossScaleManager(init_loss_scale=8, incr_every_n_steps=3)
        assert manager.initial_state == schedule.initial_state(schedule.policy("contrib", growth_interval=3), 8)
        assert isinstance(manager, contrib.LossScaleManager)
        assert isinstance(contrib.FixedLossScaleManager(8), contrib.LossScaleManager)
