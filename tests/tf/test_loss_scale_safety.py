"""What loss scaling protects beyond the originals: statistics, norms, hooks, windows, and people who wait."""

import logging

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from sessions import named

from npu_shim.loss_scale import automatic
from npu_shim.loss_scale.managers import managers, schedule
from npu_shim.loss_scale.managers.mindspore import DynamicLossScaleManager
from npu_shim.loss_scale.optimizers import accumulate, gradients, update_ops
from npu_shim.loss_scale.optimizers.npu_optimizer import NPUOptimizer
from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer, NPULossScaleOptimizer
from npu_shim.loss_scale.steps import hooks
from npu_shim.rewriter.errors import ConfigError


@pytest.fixture
def resource(resource, control_flow_of_version_1):
    return resource


def dynamic(init=1024.0, **settings):
    rule = schedule.policy("experimental", **settings)
    return managers.ScheduledLossScaleManager(rule, init)


def batch_norm_step(protect):
    x = tf.placeholder(tf.float32, [4, 3])
    normed = tf.layers.batch_normalization(x, training=True, momentum=0.5)
    w = tf.get_variable("w", initializer=1.0)
    optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(0.01, 0.9), dynamic(), protect_update_ops=protect)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = optimizer.minimize(tf.reduce_sum(tf.square(normed) * w), tf.train.get_or_create_global_step())
    return x, step


@pytest.mark.parametrize("protect", [True, False])
def test_one_bad_batch_and_the_moving_mean(resource, protect):
    """With the originals, and here without protection, the statistics are lost for ever."""
    good = np.arange(12, dtype=np.float32).reshape(4, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        x, step = batch_norm_step(protect)
        session.run(tf.global_variables_initializer())
        statistics = [v for v in tf.global_variables() if "moving_" in v.name]
        assert len(statistics) == 2
        session.run(step, {x: good})
        before = session.run(statistics)
        session.run(step, {x: np.where(good == 5, np.inf, good)})
        after = session.run(statistics)
        session.run(step, {x: good})
        last = session.run(statistics)
    assert not np.array_equal(before[0], np.zeros(3))
    if protect:
        np.testing.assert_array_equal(before, after)
        assert np.all(last[0] > before[0])
    assert bool(np.all(np.isfinite(last))) is protect


def test_protected_statistics_move_as_unprotected_ones_when_nothing_overflows(resource):
    results = []
    for protect in (True, False):
        with tf.Graph().as_default(), tf.Session() as session:
            x, step = batch_norm_step(protect)
            session.run(tf.global_variables_initializer())
            for i in range(3):
                session.run(step, {x: np.full((4, 3), i, np.float32)})
            results.append([session.run(v) for v in tf.global_variables()])
    for one, other in zip(*results):
        np.testing.assert_array_equal(one, other)


def test_update_ops_that_assign_nothing_are_named():
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.py_func(lambda: np.float32(0), [], tf.float32, name="mine"))
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(), dynamic(), protect_update_ops=True)
        with pytest.raises(ConfigError, match="protect_update_ops: 'mine:0' does not assign to a variable"):
            optimizer.minimize(w * w)


def test_moving_average_of_the_weights_waits_for_applied_steps(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), dynamic())
        with pytest.raises(ConfigError, match="when_finite is called after"):
            optimizer.when_finite(tf.no_op)
        step = optimizer.minimize(w * x)
        average = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([step]):
            averaged = optimizer.when_finite(lambda: average.apply([w]))
        assert average.average_name(w) == "w/ExponentialMovingAverage"
        assert "w/ExponentialMovingAverage:0" in [v.name for v in tf.global_variables()]
        session.run(tf.global_variables_initializer())
        seen = []
        for value in (1.0, np.nan, 1.0):
            session.run(averaged, {x: value})
            seen.append(float(session.run(average.average(w))))
    # 1 -> (1 + 0) / 2 -> skipped -> (0.5 - 1) / 2
    assert seen == [0.5, 0.5, -0.25]


@pytest.mark.parametrize(
    ("values", "norm", "clipped"),
    [
        ([3.0, 4.0], 5.0, [0.6, 0.8]),
        ([0.3, 0.4], 0.5, [0.3, 0.4]),
        ([np.inf, 4.0], np.inf, [np.inf, 4.0]),
        ([np.nan, 4.0], np.nan, [np.nan, 4.0]),
    ],
)
def test_clip_by_global_norm(values, norm, clipped):
    with tf.Graph().as_default(), tf.Session() as session:
        given = [tf.constant([values[0]]), None, tf.IndexedSlices(tf.constant([values[1]]), tf.constant([0]))]
        out, measured = gradients.clip_by_global_norm(given, 1.0)
        assert out[1] is None
        assert isinstance(out[2], tf.IndexedSlices)
        one, other, length = session.run([out[0], out[2].values, measured])
    np.testing.assert_allclose([one[0], other[0]], clipped, rtol=4 * np.finfo(np.float32).eps)
    np.testing.assert_allclose(length, norm, rtol=4 * np.finfo(np.float32).eps)


def test_clipping_between_compute_and_apply_sees_unscaled_gradients_and_still_skips(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 1.0])
        x = tf.placeholder(tf.float32, [2])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), dynamic(init=2.0**20))
        pairs = optimizer.compute_gradients(tf.reduce_sum(w * x))
        clipped, norm = gradients.clip_by_global_norm([g for g, _ in pairs], 1.0)
        step = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs]))
        session.run(tf.global_variables_initializer())
        assert session.run([norm, step], {x: [3.0, 4.0]})[0] == 5.0
        np.testing.assert_allclose(session.run(w), [0.4, 0.2], rtol=1e-6)
        session.run(step, {x: [np.inf, 4.0]})
        np.testing.assert_allclose(session.run(w), [0.4, 0.2], rtol=1e-6)


def test_scaled_gradients_for_a_training_step_by_hand(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        unused = tf.get_variable("unused", initializer=1.0)
        narrow = tf.cast(w, tf.float16) * tf.constant(2.0**-20, tf.float16)  # 2**-20 is subnormal, 2**-25 is 0
        loss = tf.reduce_sum(tf.cast(narrow, tf.float32)) * 2.0**-7
        plain = tf.gradients(loss, [w])[0]
        scaled, none = gradients.scaled_gradients(loss, [w, unused], 1024.0)
        session.run(tf.global_variables_initializer())
        assert none is None
        np.testing.assert_array_equal(session.run(plain), [0.0, 0.0])
        np.testing.assert_array_equal(session.run(scaled), [2.0**-27, 2.0**-27])


def hooked(feeds, hook_of, init=1024.0, detector=None):
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        loss = w * x
        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), dynamic(init), detector=detector)
        step = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        with tf.train.MonitoredSession(hooks=hook_of(loss)) as session:
            for i, value in enumerate(feeds):
                if session.should_stop():
                    return i
                session.run(step, {x: value})
            return len(feeds)


def test_the_loss_may_be_nan_in_skipped_steps():
    feeds = [1.0, np.nan, np.nan, 1.0, np.nan]
    with pytest.raises(tf.train.NanLossDuringTrainingError):
        hooked(feeds, lambda loss: [tf.train.NanTensorHook(loss)])
    tolerant = lambda loss: hooks.tolerant_hooks([tf.train.NanTensorHook(loss)])  # noqa: E731
    assert hooked(feeds, tolerant) == 5


def test_the_loss_may_not_be_nan_for_ever():
    with pytest.raises(tf.train.NanLossDuringTrainingError):
        hooked([np.nan] * 5, lambda loss: [hooks.NanLossHook(loss, patience=3)])
    assert hooked([np.nan] * 5, lambda loss: [hooks.NanLossHook(loss, fail_on_nan_loss=False, patience=3)]) == 3


def test_the_loss_may_not_be_nan_in_an_applied_step():
    everything = lambda gradients: tf.constant(True)  # noqa: E731
    with pytest.raises(tf.train.NanLossDuringTrainingError):
        hooked([1.0, np.nan], lambda loss: [hooks.NanLossHook(loss)], detector=everything)


def test_other_hooks_are_left_alone():
    with tf.Graph().as_default():
        nan, other = tf.train.NanTensorHook(tf.constant(1.0), fail_on_nan_loss=False), tf.train.StopAtStepHook(5)
        replaced = hooks.tolerant_hooks([nan, other])
    assert isinstance(replaced[0], hooks.NanLossHook)
    assert replaced[0]._fail is False
    assert replaced[1] is other


def test_skipped_steps_are_reported_in_place_of_a_warning(caplog):
    caplog.set_level(logging.INFO, logger="tensorflow")

    class Complaining(tf.train.SessionRunHook):
        """Says what tf.train.StepCounterHook says, which does so five times a process only."""

        def after_run(self, run_context, run_values):
            tf.logging.warning("It seems that global step (%s) has not been increased. Current value", "global_step")

    def messages(*more):
        caplog.clear()
        feeds = [1.0] + [np.inf] * 5 + [1.0] * 2
        hooked(feeds, lambda loss: [Complaining(), *more])
        lines = [record.getMessage() for record in caplog.records]
        warned = [m for m in lines if "has not been increased" in m]
        return len(warned), [m.split(" so far")[0] for m in lines if "steps skipped so far" in m]

    assert messages() == (8, [])
    for every in (1, 4):
        warned, reported = messages(hooks.SkippedStepsHook(every=every))
        assert warned == 0
        # a count that is fetched with the step may be from before it, so that the row seems to have a gap
        assert len(reported) <= 2
        assert reported[-1] == "npu_shim: 5 steps skipped"
    assert messages(hooks.SkippedStepsHook(every=100)) == (0, ["npu_shim: 5 steps skipped"]), "at the end"
    assert messages() == (8, []), "the warning is let through again"


def stuck(session, feeds, **settings):
    good, bad = (tf.get_variable(n, initializer=1.0) for n in ("healthy", "sick"))
    x = tf.placeholder(tf.float32, [])
    optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), dynamic(init=2.0), **settings)
    step = optimizer.minimize(good + bad * x)
    session.run(tf.global_variables_initializer())
    for value in feeds:
        session.run(step, {x: value})
    return session.run(optimizer.skipped_steps)


def test_stuck_at_the_floor_warns_with_the_names(resource, capfd):
    with tf.Graph().as_default(), tf.Session() as session:
        # 2 -> 1 takes one step, then three at the floor
        assert stuck(session, [np.inf] * 3, stuck_after=3) == 3
        assert "npu_shim: steps skipped" not in capfd.readouterr().err
    with tf.Graph().as_default(), tf.Session() as session:
        stuck(session, [np.inf] * 4, stuck_after=3)
    said = capfd.readouterr().err
    assert "npu_shim: steps skipped in a row at the smallest loss scale: 3" in said
    assert "sick:0" in said
    assert "healthy:0" not in said


def test_stuck_at_the_floor_raises(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        assert stuck(session, [np.inf, np.inf, 1.0] * 3, on_stuck="raise", stuck_after=3) == 6
    with tf.Graph().as_default(), tf.Session() as session, pytest.raises(
        tf.errors.InvalidArgumentError, match="npu_shim: steps skipped in a row"
    ):
        stuck(session, [np.inf] * 4, on_stuck="raise", stuck_after=3)


def test_stuck_can_be_ignored_and_misspelt(resource, capfd):
    with tf.Graph().as_default(), tf.Session() as session:
        stuck(session, [np.inf] * 6, on_stuck="ignore", stuck_after=2)
        assert "npu_shim: steps skipped" not in capfd.readouterr().err
    with tf.Graph().as_default():
        with pytest.raises(ConfigError, match=r"on_stuck='rais' is unknown \(did you mean 'raise'\?\)"):
            LossScaleOptimizer(tf.train.AdamOptimizer(), dynamic(), on_stuck="rais")
        with pytest.raises(ConfigError, match="stuck_after=0"):
            LossScaleOptimizer(tf.train.AdamOptimizer(), dynamic(), stuck_after=0)


@pytest.mark.parametrize(("init", "said"), [(2.0**32, "34 skipped steps"), (2.0**15, None)])
def test_the_cost_of_a_high_start_is_a_warning(caplog, init, said):
    with tf.Graph().as_default():
        manager = managers.ExponentialUpdateLossScaleManager(init, 1000, 2, decr_ratio=0.5)
        NPULossScaleOptimizer(tf.train.AdamOptimizer(), manager)
    said_of = [record for record in caplog.records if "loss scale starts" in record.getMessage()]
    messages = [record.getMessage() for record in said_of if record.levelno == logging.WARNING]  # a session script's
    assert len(messages) == (1 if said else 0)
    if said:
        assert said in messages[0]


def test_summaries(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        assert hooks.summaries() == []
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        step = NPULossScaleOptimizer(tf.train.AdamOptimizer(), dynamic()).minimize(w * x)
        hooks.summaries()
        merged = tf.summary.merge_all()
        session.run(tf.global_variables_initializer())
        for value in (np.inf, np.inf, 1.0):
            session.run(step, {x: value})
        written = tf.Summary.FromString(session.run(merged))
    assert {v.tag: v.simple_value for v in written.value} == {"loss_scale": 256.0, "skipped_steps": 2.0}


def test_an_overflow_sticks_to_its_window_and_leaves_with_it(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=0.0)
        table = tf.get_variable("table", initializer=[0.0, 0.0])
        x = tf.placeholder(tf.float32, [])
        inner = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), dynamic())
        optimizer = accumulate.AccumulatingOptimizer(inner, 2)
        global_step = tf.train.get_or_create_global_step()
        step = optimizer.minimize(w * x + tf.reduce_sum(tf.gather(table, [1])) * x, global_step)
        session.run(tf.global_variables_initializer())
        seen = []
        for value in (1.0, 3.0, np.inf, 1.0, 1.0, -np.inf, 1.0, 2.0):
            session.run(step, {x: value})
            seen.append((*session.run([w, global_step, named("loss_scale:0")]), *session.run(table)))
    assert seen[1::2] == [
        (-2.0, 1, 1024.0, 0.0, -2.0),
        (-2.0, 1, 512.0, 0.0, -2.0),
        (-2.0, 1, 256.0, 0.0, -2.0),
        (-3.5, 2, 256.0, 0.0, -3.5),
    ]


@pytest.mark.parametrize("implementation", [None, "mindspore-scaler"])
def test_mindspore_managers_drive_the_optimizer(resource, implementation):
    manager = DynamicLossScaleManager(1024, 2, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        given = manager if implementation is None else manager.graph_manager(implementation)
        step = LossScaleOptimizer(tf.train.AdamOptimizer(), given).minimize(w * x)
        session.run(tf.global_variables_initializer())
        scales = []
        for value in (1.0, 1.0, np.inf, np.inf, 1.0, 1.0):
            session.run(step, {x: value})
            scales.append(float(session.run(named("loss_scale:0"))))
    assert scales == [1024, 2048, 1024, 512, 512, 1024]
    with pytest.raises(ConfigError, match="did you mean 'mindspore-cell'"):
        manager.graph_manager("mindspore-cel")


@pytest.mark.parametrize("drop", [True, False])
def test_fixed_scale_under_mindspores_name_of_the_switch(resource, drop):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        manager = managers.FixedLossScaleManager(loss_scale=128.0, drop_overflow_update=drop)
        step = LossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager).minimize(w * x)
        session.run(tf.global_variables_initializer())
        session.run(step, {x: 0.5})
        assert session.run(w) == 0.5  # unscaled in both cases
        session.run(step, {x: np.inf})
        assert bool(np.isfinite(session.run(w))) is drop


def test_npu_optimizer(resource):
    with pytest.raises(ConfigError, match="is_loss_scale=True needs a loss_scale_manager"):
        NPUOptimizer(tf.train.AdamOptimizer(), is_loss_scale=True)
    for scaled in (True, False):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=1.0)
            manager = dynamic() if scaled else None
            optimizer = NPUOptimizer(tf.train.AdamOptimizer(0.1), manager, is_loss_scale=scaled)
            step = optimizer.minimize(w * w)
            assert optimizer.get_name() == step.name == "NPUOptimizerAdamOptimizer"
            assert optimizer.get_slot_names() == ["m", "v"]
            session.run(tf.global_variables_initializer())
            session.run(step)
            assert session.run(w) < 1.0
            assert ("loss_scale:0" in [v.name for v in tf.global_variables()]) is scaled


CLEANED = {
    "clipped by value": lambda gradient: tf.clip_by_value(gradient, -0.5, 0.5),
    "infinity is zero": lambda gradient: tf.where(tf.is_finite(gradient), gradient, tf.zeros_like(gradient)),
    "of rows": lambda gradient: tf.IndexedSlices(tf.tanh(gradient.values), gradient.indices, gradient.dense_shape),
}


@pytest.mark.parametrize("accumulated", [False, True], ids=["alone", "accumulated"])
@pytest.mark.parametrize("cleaned", sorted(CLEANED))
def test_clipping_does_not_hide_an_overflow_from_the_bridge_s_optimizer(resource, cleaned, accumulated):
    def trained(wrap, factors):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=[[0.5, -0.25], [1.0, 1.0]])
            x = tf.placeholder(tf.float32, [])
            taken = tf.gather(w, [0]) if cleaned == "of rows" else w
            optimizer = wrap(tf.train.MomentumOptimizer(0.5, 0.5))
            pairs = [(CLEANED[cleaned](g), v) for g, v in optimizer.compute_gradients(tf.reduce_sum(taken**2) * x)]
            counter = tf.train.get_or_create_global_step()
            step = optimizer.apply_gradients(pairs, counter)
            session.run(tf.global_variables_initializer())
            for factor in factors:
                session.run(step, {x: factor})
            scale = session.run(managed[-1].get_loss_scale()) if managed else None
            return session.run([w, counter]), scale

    def scaled(optimizer):
        managed.append(dynamic(1024.0))
        wrapper = NPULossScaleOptimizer(optimizer, managed[-1])
        return accumulate.AccumulatingOptimizer(wrapper, 1) if accumulated else wrapper

    managed = []
    plain, _ = trained(lambda optimizer: optimizer, [0.25, 0.5])
    values, scale = trained(scaled, [0.25, np.inf, 0.5, np.inf])
    for one, other in zip(values, plain):
        np.testing.assert_array_equal(one, other)
    assert scale == 256.0


def test_contrib_s_optimizer_looks_at_what_it_applies(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), dynamic())
        [(gradient, _)] = optimizer.compute_gradients(w * x)
        step = optimizer.apply_gradients([(tf.clip_by_value(gradient, -0.5, 0.5), w)])
        session.run(tf.global_variables_initializer())
        session.run(step, {x: np.inf})
        assert session.run(w) == 0.75


def test_a_step_reads_its_scale_once(resource):
    """Another thread's step may move the scale between two reads; an Identity of a reference is no read yet."""
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0)
        manager = dynamic()
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), manager)
        [(gradient, _)] = optimizer.compute_gradients(w * w)
        needed = update_ops.upstream([gradient.op])

        def readers(tensor):
            for op in tensor.consumers():
                if op in needed:
                    yield from (readers(op.outputs[0]) if op.type in ("Identity", "ReadVariableOp") else [op])

        holder = tf.convert_to_tensor(manager.get_loss_scale()).op.inputs[0]
        assert len(set(readers(holder))) == 1


@pytest.mark.parametrize("automatically", [False, True], ids=["optimizer", "automatic"])
def test_a_scale_at_the_end_of_float32_loses_no_gradient(resource, automatically):
    """In bfloat16 nothing overflows before, so that scales grow to 2**127; TensorFlow flushes its reciprocal to 0."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        if automatically:
            automatic.install(2.0**127)
        else:
            optimizer = NPULossScaleOptimizer(optimizer, dynamic(2.0**127))
        try:
            step = optimizer.minimize(w * 0.25)
        finally:
            automatic.uninstall()
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert session.run(w) == 0.75
