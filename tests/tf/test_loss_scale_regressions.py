"""Loss scaling: regressions."""

import gc
import importlib
import inspect
import logging
import weakref

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import (
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    LossScaleOptimizer,
    NPULossScaleOptimizer,
    clip_by_global_norm,
)
from npu_shim.rewriter.errors import ConfigError

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1")


def dynamic(init=2.0**10):
    return ExponentialUpdateLossScaleManager(init, 1000, decr_every_n_nan_or_inf=1, decr_ratio=0.5)


CLIPPED = {
    "many float16": [np.full(1000, 20, np.float16)],  # a sum of squares of 400,000
    "large float32": [np.full(3, 1e30, np.float32), np.zeros(2, np.float32)],
    "mixed": [np.full(3, 300, np.float16), np.full(2, 400, np.float32), None],
    "wide": [np.full(3, 300, np.float16), np.full(2, 400, np.float64)],
    "empty": [np.zeros([0, 3], np.float32), np.full(2, 1e25, np.float32)],
    "small": [np.full(4, 0.25, np.float16)],
    "zero": [np.zeros(4, np.float32)],
}


@pytest.mark.parametrize("case", sorted(CLIPPED))
def test_clipping_takes_the_norm_in_float32_or_wider(case):
    arrays = CLIPPED[case]
    with tf.Graph().as_default(), tf.Session() as session:
        given = [None if a is None else tf.constant(a) for a in arrays]
        clipped, norm = clip_by_global_norm(given, 1.0)
        values, norm = session.run([[c for c in clipped if c is not None], norm])
    exact = [a.astype(np.float64) for a in arrays if a is not None]
    expected = np.sqrt(sum(np.sum(a**2) for a in exact))
    assert [c is None for c in clipped] == [a is None for a in arrays]
    assert [v.dtype for v in values] == [a.dtype for a in arrays if a is not None]
    np.testing.assert_allclose(norm, expected, rtol=1e-5)
    for value, a in zip(values, exact):
        np.testing.assert_allclose(value, a / max(expected, 1.0), rtol=1e-3)


def test_clipping_keeps_sparse_gradients_and_overflows():
    with tf.Graph().as_default(), tf.Session() as session:
        sparse = tf.IndexedSlices(tf.constant(np.full([500, 2], 20, np.float16)), tf.range(500), tf.constant([900, 2]))
        (clipped,), _ = clip_by_global_norm([sparse], 1.0)
        assert isinstance(clipped, tf.IndexedSlices)
        assert clipped.values.dtype == tf.float16
        np.testing.assert_allclose(np.linalg.norm(session.run(clipped.values).astype(np.float32)), 1.0, rtol=1e-2)
        bad, norm = clip_by_global_norm([tf.constant([1.0, np.inf]), tf.constant([7.0])], 1.0)
        values, norm = session.run([bad, norm])
        assert not np.isfinite(norm)
        np.testing.assert_array_equal(values[0], [1.0, np.inf])
        np.testing.assert_array_equal(values[1], [7.0])


class Protected:
    """A model of one weight whose UPDATE_OPS run before the step, as batch norm's do; `x` infinite skips the step."""

    def __init__(self, build):
        self.x = tf.placeholder(tf.float32, [])
        self.w = tf.get_variable("w", initializer=1.0)
        self.state = build(self.x)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            loss = tf.square(self.w) * tf.identity(self.x)
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), dynamic(), protect_update_ops=True)
        self.step = optimizer.minimize(loss, tf.train.get_or_create_global_step())

    def states(self, feeds):
        with sessions.started() as session:
            for x in feeds:
                session.run(self.step, {self.x: x})
            return np.hstack(session.run(self.state))


def zero_debiased(x):
    mean = tf.get_variable("mean", initializer=0.0, trainable=False)
    moving_averages = importlib.import_module("tensorflow.python.training.moving_averages")  # as scripts of version 1
    update = moving_averages.assign_moving_average(mean, x, 0.9, zero_debias=True)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
    return [v for v in tf.global_variables() if v.op.name.startswith("mean")]


def scattered(x):
    table = tf.get_variable("table", initializer=[1.0, 2.0, 3.0], trainable=False)
    count = tf.get_variable("count", initializer=0.0, trainable=False)
    update = tf.group(tf.scatter_add(table, [1], [x]), tf.assign_add(count, 1.0))
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
    return [table, count]


def from_an_assignment(x):
    count = tf.get_variable("count", initializer=0.0, trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, count.assign_add(1.0))
    return [count]


def chained(x):
    count = tf.get_variable("count", initializer=0.0, trainable=False)
    total = tf.get_variable("total", initializer=0.0, trainable=False)
    with tf.control_dependencies([tf.assign_add(count, 1.0)]):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(total, x * 2.0))
    return [count, total]


@pytest.mark.parametrize("build", [zero_debiased, scattered, from_an_assignment, chained])
def test_a_skipped_step_undoes_the_whole_of_an_update(build, resource):
    seen = []
    for feeds in ([1.0, 3.0], [1.0, np.inf, 3.0, np.nan]):
        with tf.Graph().as_default():
            seen.append(Protected(build).states(feeds))
    np.testing.assert_array_equal(*seen)
    assert np.any(seen[0])


def test_another_optimizers_step_is_no_part_of_an_update(resource):
    def after_a_step(x):
        other = tf.get_variable("other", initializer=1.0)
        mean = tf.get_variable("mean", initializer=0.0, trainable=False)
        step = tf.train.AdamOptimizer(0.5).minimize(tf.square(other), var_list=[other])
        with tf.control_dependencies([step]):
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(mean, x))
        return [other, mean]

    with tf.Graph().as_default():
        other, mean = Protected(after_a_step).states([np.inf])
    assert (other, mean) == (pytest.approx(0.5), 0.0)


def test_an_update_in_a_loop_is_refused(resource):
    def looped(x):
        v = tf.get_variable("v", initializer=0.0, trainable=False, use_resource=True)

        def body(i):
            with tf.control_dependencies([v.assign_add(x)]):
                return i + 1

        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.while_loop(lambda i: i < 3, body, [0]))
        return [v]

    with tf.Graph().as_default(), pytest.raises(ConfigError, match="assigns to a variable in a loop"):
        Protected(looped)


@pytest.mark.parametrize("on_stuck", ["raise", "ignore"])
def test_counters_outlive_the_local_variables_initializer(on_stuck, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        optimizer = LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(8.0), on_stuck=on_stuck, stuck_after=3
        )
        step = optimizer.minimize(tf.square(w) * np.inf)
        session.run(tf.global_variables_initializer())
        for number in range(3):
            session.run(tf.local_variables_initializer())  # a metric is reset every epoch
            if on_stuck == "raise" and number == 2:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    session.run(step)
            else:
                session.run(step)
        if on_stuck == "ignore":
            assert session.run([optimizer.attempted_steps, optimizer.skipped_steps]) == [3, 3]


def test_an_optimizer_keeps_no_graph_and_has_a_flag_for_each():
    with tf.Graph().as_default():
        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(8.0))
    graphs = []
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            assert optimizer.grads_finite is None
            with pytest.raises(ConfigError, match="when_finite"):
                optimizer.when_finite(tf.no_op)
            optimizer.minimize(tf.square(tf.get_variable("w", initializer=1.0, use_resource=True)))
            assert optimizer.grads_finite.graph is graph
            graphs.append(weakref.ref(graph))
        del graph
    # TensorFlow's own optimizer holds its hyperparameters' tensors, and so the last graph
    with tf.Graph().as_default():
        optimizer._opt._prepare()
    tf.reset_default_graph()
    gc.collect()
    assert [graph() for graph in graphs] == [None, None]


def sharing(resource):
    start = tf.zeros([2])
    return [tf.Variable(start, name=name, use_resource=resource) for name in ("a", "c")]


def partitioned(resource):
    halves = tf.fixed_size_partitioner(2)
    return list(
        tf.get_variable("parts", [5, 2], initializer=tf.zeros_initializer(), partitioner=halves, use_resource=resource)
    )


def odd(resource):
    return [
        tf.get_variable("text", initializer=["a", "b"], use_resource=resource),
        tf.get_variable("any", initializer=tf.zeros([1]), validate_shape=False, use_resource=resource),
        tf.get_variable("half", initializer=tf.zeros([3], tf.float16), use_resource=resource),
        tf.get_variable("count", initializer=tf.zeros([], tf.int64), use_resource=resource),
    ]


def values_for(variable, number):
    if variable.dtype.base_dtype == tf.string:
        return np.array([b"x%d" % number, b"y"], object)
    shape = variable.shape.as_list() if variable.shape.dims is not None else [1]
    return (np.arange(np.prod(shape)).reshape(shape) + number).astype(variable.dtype.base_dtype.as_numpy_dtype)


@pytest.mark.parametrize("builder", ["plain", "casting"])
@pytest.mark.parametrize("source", ["cond/beta1_power", "beta1_power"])
@pytest.mark.parametrize("build", [sharing, partitioned, odd])
def test_the_saver_restores_every_kind_of_variable(tmp_path, build, source, builder, resource):
    def savers():
        from npu_shim import CastingSaverBuilder
        from npu_shim.loss_scale import LossScaleSaver

        return LossScaleSaver(**({"builder": CastingSaverBuilder()} if builder == "casting" else {}))

    saved = {}
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [*build(resource), tf.Variable(0.0, name=source)]
        saver = savers() if source == "beta1_power" else tf.train.Saver()
        session.run(tf.global_variables_initializer())
        for number, variable in enumerate(variables, 2):
            saved[variable.op.name] = values_for(variable, number)
            value = tf.placeholder(variable.dtype.base_dtype, saved[variable.op.name].shape)
            session.run(tf.assign(variable, value, validate_shape=False), {value: saved[variable.op.name]})
        path = saver.save(session, str(tmp_path / "model"))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        variables = [*build(resource), tf.Variable(0.0, name="beta1_power"), tf.Variable(7.0, name="loss_scale")]
        saver = savers()
        graph.finalize()
        saver.restore(session, path)
        for variable in variables[:-2]:
            np.testing.assert_array_equal(session.run(variable), saved[variable.op.name])
        assert session.run(variables[-2:]) == [saved[source], 7.0]


def test_the_saver_restores_tables(tmp_path):
    from npu_shim.loss_scale import LossScaleSaver

    def build():
        lookup = importlib.import_module("tensorflow.python.ops.lookup_ops")
        return lookup.MutableHashTable(tf.string, tf.int64, -1, name="table", checkpoint=True)

    with tf.Graph().as_default(), tf.Session() as session:
        table, _ = build(), tf.Variable(3.0, name="cond/beta1_power")
        session.run([tf.global_variables_initializer(), table.insert(tf.constant(["k"]), tf.constant([5], tf.int64))])
        path = LossScaleSaver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as session:
        table, power = build(), tf.Variable(0.0, name="beta1_power")
        LossScaleSaver().restore(session, path)
        assert session.run(table.lookup(tf.constant(["k", "none"]))).tolist() == [5, -1]
        assert session.run(power) == 3.0


@pytest.mark.parametrize("stored", [tf.float32, tf.float16])
def test_the_saver_casts_and_renames_at_once(tmp_path, stored, resource):
    from npu_shim import CastingSaverBuilder
    from npu_shim.loss_scale import LossScaleSaver

    wanted = tf.float16 if stored == tf.float32 else tf.float32
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable(tf.constant([1.5, 2.5], stored), name="w")
        tf.Variable(3.0, name="cond/beta1_power")
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.Variable(tf.zeros([2], wanted), name="w")
        power = tf.Variable(0.0, name="beta1_power")
        LossScaleSaver(builder=CastingSaverBuilder()).restore(session, path)
        assert session.run(w).tolist() == [1.5, 2.5]
        assert session.run(power) == 3.0
        with pytest.raises(ConfigError, match="'w' is float"):
            LossScaleSaver().restore(session, path)


def accumulating(wrapped, every=2):
    from npu_shim.loss_scale import AccumulatingOptimizer

    inner = tf.train.AdamOptimizer(0.1)
    return AccumulatingOptimizer(NPULossScaleOptimizer(inner, dynamic()) if wrapped else inner, every)


@pytest.mark.parametrize("wrapped", [False, True])
def test_accumulation_leaves_the_names_of_the_plain_optimizer(tmp_path, wrapped, resource):
    def build(optimizer):
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        with tf.name_scope("outer"):
            step = optimizer.minimize(tf.reduce_sum(w * w), tf.train.get_or_create_global_step(), name="train")
        return w, step

    with tf.Graph().as_default(), tf.Session() as session:
        _, step = build(tf.train.AdamOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        session.run(step)
        path = tf.train.Saver().save(session, str(tmp_path / "plain"))
        plain = {v.op.name for v in tf.global_variables()}
    with tf.Graph().as_default(), tf.Session() as session:
        w, step = build(accumulating(wrapped))
        assert step.name == "outer/train"
        assert plain <= {v.op.name for v in tf.global_variables()}
        session.run(tf.global_variables_initializer())
        tf.train.Saver([v for v in tf.global_variables() if v.op.name in plain]).restore(session, path)
        before = session.run(w)
        session.run(step)
        np.testing.assert_array_equal(session.run(w), before)
        session.run(tf.get_collection(tf.GraphKeys.TRAIN_OP))  # all of them can be fetched
        assert np.all(session.run(w) < before)
        assert session.run(tf.train.get_global_step()) == 2


def test_accumulation_under_hooks_summaries_and_from_a_meta_graph(tmp_path, resource):
    from npu_shim.loss_scale import NanLossHook, SkippedStepsHook, summaries

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        w = tf.get_variable("w", initializer=1.0)
        loss = tf.square(w) * x
        step = accumulating(True).minimize(loss, tf.train.get_or_create_global_step(), name="train")
        summaries()
        merged = tf.summary.merge_all()
        meta = tf.train.export_meta_graph()
        with tf.train.MonitoredSession(hooks=[NanLossHook(loss), SkippedStepsHook(1)]) as session:
            values = [session.run([step, merged, w], {x: value})[2] for value in (1.0, np.nan, np.nan, 1.0, 1.0, 1.0)]
            final = session.run(w, {x: 1.0})
        assert final < 1.0
        assert len(set(values[:5])) == 1
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(meta)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for _ in range(2):
            session.run("train", {"x:0": 1.0})
        assert session.run(tf.train.get_global_step()) == 1


def test_the_nan_hook_asks_only_the_optimizer_that_steps(resource):
    from npu_shim.loss_scale import NanLossHook

    with tf.Graph().as_default():
        feeds = {name: tf.placeholder(tf.float32, [], name=name) for name in "dg"}
        tf.train.get_or_create_global_step()
        losses, steps = {}, {}
        for name, x in feeds.items():
            w = tf.get_variable("w" + name, initializer=1.0)
            losses[name] = tf.square(w) * x
            optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), dynamic())
            steps[name] = optimizer.minimize(losses[name], var_list=[w])
        with tf.train.MonitoredSession(hooks=[NanLossHook(losses["d"])]) as session:
            session.run(steps["d"], {feeds["d"]: 1.0})
            session.run({"a": [steps["d"].name]}, {feeds["d"]: np.nan})  # skipped
            session.run(losses["d"], {feeds["d"]: np.nan})  # no step at all
            session.run(steps, {feeds["d"]: 1.0, feeds["g"]: 1.0})
        unchecked = LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(1.0, enable_overflow_check=False)
        )
        step = unchecked.minimize(losses["d"])
        with tf.train.MonitoredSession(hooks=[NanLossHook(losses["d"])]) as session:
            with pytest.raises(tf.train.NanLossDuringTrainingError):
                session.run(step, {feeds["d"]: np.nan})


def test_a_loss_scale_optimizer_around_another_trains(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), FixedLossScaleManager(8.0))
        optimizer = NPULossScaleOptimizer(optimizer, FixedLossScaleManager(4.0))
        step = optimizer.minimize(tf.square(w), tf.train.get_or_create_global_step())
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert session.run([w, tf.train.get_global_step()]) == [pytest.approx(0.9), 1]


def test_several_losses_of_different_shapes(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), FixedLossScaleManager(8.0))
        losses = [tf.square(w), tf.reduce_sum(w), tf.cast(w, tf.float16)]
        for given in (losses, losses[:1] * 2):
            ((gradient, _),) = optimizer.compute_gradients(given)
            session.run(tf.global_variables_initializer())
            np.testing.assert_allclose(*session.run([gradient, tf.gradients(given, w)[0]]), rtol=1e-3)


@pytest.mark.parametrize("stored", [True, False])
def test_missing_state_under_names_of_a_dict(tmp_path, stored, resource):
    from npu_shim import CastingSaverBuilder

    with tf.Graph().as_default(), tf.Session() as session:
        w, v = tf.Variable([1.0], name="w"), tf.Variable(5.0, name="other")
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver({"w": w, **({"loss_scale": v} if stored else {})}).save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        w, v = tf.Variable([0.0], name="w"), tf.Variable(7.0, name="scale_of_mine")
        builder = CastingSaverBuilder(init_missing_loss_scale=True)
        tf.train.Saver({"w": w, "loss_scale": v}, builder=builder).restore(session, path)
        assert session.run([w[0], v]) == [1.0, 5.0 if stored else 7.0]


def test_an_output_hook_takes_any_variable_by_name(resource):
    from npu_shim.estimator.hooks import NPUOutputTensorHook

    collected = []
    with tf.Graph().as_default():
        local = tf.get_variable("local", initializer=3.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        nowhere = tf.get_variable("nowhere", initializer=4.0, collections=[])
        hook = NPUOutputTensorHook(["local:0", "nowhere:0"], output_fn=collected.extend)
        scaffold = tf.train.Scaffold(local_init_op=tf.group(local.initializer, nowhere.initializer))
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), hooks=[hook]) as session:
            session.run(local)
    assert collected == [{"local:0": 3.0, "nowhere:0": 4.0}]


def test_a_run_of_skipped_steps_is_one_line():
    # TensorFlow says it five times a process, so it is said here in its words
    hooks = importlib.import_module("tensorflow.python.training.basic_session_run_hooks")
    said = "It seems that global step (tf.train.get_global_step) has not been increased. "
    said += "Current value (could be stable): %s vs previous value: %s."
    code = "".join(inspect.getsource(hooks).split())
    assert all(words in code for words in ("hasnotbeenincreased.", "(couldbestable):%s"))
    logged = []
    logger, handler = logging.getLogger("tensorflow"), logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logger.addHandler(handler)
    try:
        with tf.Graph().as_default():
            optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.0), dynamic())
            for name in "vw":
                w = tf.get_variable(name, initializer=1.0)
                optimizer.minimize(w, tf.train.get_or_create_global_step())
        for value in (12, 12, 12, 15, 15, 12):
            logger.warning(said, value, value)
        logger.warning("another message about the global step")
    finally:
        logger.removeHandler(handler)
    line = "npu_shim: the global step stays at %d while steps whose gradients overflow are skipped"
    assert [said for said in logged if "global step" in said] == [
        line % 12,
        line % 15,
        line % 12,
        "another message about the global step",
    ]


UNDER = {  # what gradients of a loop are made under: (what is waited for, whether w is in the loop's start, turns)
    "nothing": (lambda y: [], True, 20),
    "another op": (lambda y: [tf.constant(1.0)], False, 20),
    "another op, and the loop starts with w": (lambda y: [tf.constant(1.0)], True, 3),
    "what waits for the loop": (lambda y: [tf.identity(y)], False, 3),
    "what waits for the loop, many turns": (lambda y: [tf.identity(y)], False, 20),
}
SAID_OF = {  # -> (parts of the lines, whether w is trained)
    "nothing": ([], True),
    "another op": ([], True),
    "another op, and the loop starts with w": (["'gradients/while/Enter_1_grad/Exit' is a gradient"], False),
    "what waits for the loop": (["gradients of loop 'while'"], True),
    "what waits for the loop, many turns": (["gradients of loop 'while'"], False),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("case", UNDER)
def test_gradients_that_tensorflow_does_not_compute_are_told(case, wrapped, caplog):  # nothing was applied, nor said
    awaited, starts_with_w, turns = UNDER[case]
    lines, trained = SAID_OF[case]
    with sessions.control_flow(1), tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0, use_resource=False)
        start = w * 2.0 if starts_with_w else 2.0
        y = tf.while_loop(lambda k, y: k < turns, lambda k, y: (k + 1, y * 0.5 + w), [0, start])[1]
        optimizer = tf.train.GradientDescentOptimizer(0.125)
        with tf.control_dependencies(awaited(y)):
            train_op = (LossScaleOptimizer(optimizer, dynamic()) if wrapped else optimizer).minimize(tf.square(y))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train_op)
            assert (session.run(w) != 1.0) == trained
    told = [line for line in caplog.messages if "TensorFlow" in line]
    assert len(told) == (len(lines) if wrapped else 0)
    assert all(part in line for part, line in zip(lines, told))


@pytest.mark.parametrize("inner", [{}, {"parallel_iterations": 1}])
def test_a_loop_within_a_loop_waits_for_no_end_of_its_own(inner, caplog):  # the turn before had ended, not this one
    with sessions.control_flow(1), tf.Graph().as_default():
        x, w = tf.ones([2, 12, 3]), tf.get_variable("w", [3, 3], use_resource=False)

        def row(a):
            turn = lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w) + tf.reshape(tf.gather(a, i), [1, 3])))  # noqa: E731
            return tf.while_loop(lambda i, h: i < 12, turn, [0, tf.zeros([1, 3])], **inner)[1]

        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.01), dynamic())
        train_op = optimizer.minimize(tf.reduce_sum(tf.map_fn(row, x)))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            before = session.run(w)
            session.run(train_op)
            assert (session.run(w) != before).all()
    assert [line for line in caplog.messages if "TensorFlow" in line] == []
