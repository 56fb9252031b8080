"""AccumulatingOptimizer against plain TensorFlow: nine kinds of optimizer, sparse and dense, reference and resource."""

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from sessions import named

from npu_shim.loss_scale import AccumulatingOptimizer, FixedLossScaleManager, LossScaleOptimizer
from npu_shim.rewriter.errors import ConfigError

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1")

OPTIMIZERS = {
    "descent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(0.5),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.9),
    "centered": lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "dual": lambda: tf.train.AdagradDAOptimizer(0.1, tf.train.get_or_create_global_step()),
    "proximal adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
    "proximal descent": lambda: tf.train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01),
}
ROWS, COLUMNS, STEPS = 5, 2, 6


def batches():
    """Indices (some twice, row 4 never) and the gradients of their values; gradients of a dense variable."""
    random = np.random.RandomState(0)
    for step in range(STEPS):
        rows = [step % 2, 2, 2] if step % 3 else [3]
        yield np.array(rows), random.randn(len(rows), COLUMNS).astype("f"), random.randn(3).astype("f")


def variables():
    table = tf.get_variable("table", [ROWS, COLUMNS], initializer=tf.constant_initializer(0.3))
    return table, tf.get_variable("dense", [3], initializer=tf.constant_initializer(0.3))


def step_of(optimizer, table, dense):
    """The training op and its feeds: gradients as they are fed."""
    rows = tf.placeholder(tf.int32, [None])
    values, gradient = tf.placeholder(tf.float32, [None, COLUMNS]), tf.placeholder(tf.float32, [3])
    slices = tf.IndexedSlices(values, rows, tf.constant([ROWS, COLUMNS]))
    step = optimizer.apply_gradients([(slices, table), (gradient, dense)], tf.train.get_or_create_global_step())
    return step, (rows, values, gradient)


def trained(optimizer, fed):
    """Values of the model and of the slots after each of the fed steps."""
    with tf.Graph().as_default(), tf.Session() as session:
        table, dense = variables()
        step, feeds = step_of(optimizer(), table, dense)
        session.run(tf.global_variables_initializer())
        own = [v for v in tf.global_variables() if not v.op.name.endswith(("accumulated", "_rows", "_steps"))]
        seen = []
        for values in fed:
            session.run(step, dict(zip(feeds, values)))
            seen.append({v.op.name: session.run(v) for v in own})
        return seen


def windows(every):
    """What plain TensorFlow gets for a window: the rows of all batches, and the mean of the dense gradients."""
    read = list(batches())
    for start in range(0, STEPS, every):
        rows, values, dense = zip(*read[start : start + every])
        yield np.concatenate(rows), np.concatenate(values) / every, np.mean(dense, axis=0)


@pytest.mark.by_day("reference-scaled-3", "resource-plain-3")
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 3])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_a_window_is_a_step_of_plain_tensorflow(every, scaled, resource):
    for name, optimizer in OPTIMIZERS.items():

        def wrapped(optimizer=optimizer):
            inner = LossScaleOptimizer(optimizer(), FixedLossScaleManager(1.0)) if scaled else optimizer()
            return AccumulatingOptimizer(inner, every)

        expected = trained(optimizer, windows(every))
        given = trained(wrapped, batches())[every - 1 :: every]
        assert len(given) == len(expected)
        for one, other in zip(given, expected):
            assert one.keys() == other.keys()
            for variable in other:
                # sums of `every` terms and of three equal rows, in another order
                np.testing.assert_allclose(
                    one[variable], other[variable], rtol=2e-5, atol=2e-6, err_msg="%s: %s" % (name, variable)
                )
        assert np.array_equal(given[-1]["table"][4], expected[-1]["table"][4]), name


def test_steps_that_gather_change_nothing(resource):
    first, _, last = trained(
        lambda: AccumulatingOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), 3), list(batches())[:3]
    )
    for name, value in first.items():
        assert np.all(value == (0 if "Momentum" in name or name == "global_step" else np.float32(0.3))), name
    assert not np.array_equal(first["table"], last["table"])


def test_an_overflow_in_sparse_gradients_leaves_with_its_window(resource):
    fed = list(batches())
    bad = [(rows, np.where(values == values, np.inf, values), dense) for rows, values, dense in fed[:1]]
    scaled = lambda: LossScaleOptimizer(tf.train.AdamOptimizer(0.1), FixedLossScaleManager(1.0))  # noqa: E731
    seen = trained(lambda: AccumulatingOptimizer(scaled(), 2), [*bad, *fed[1:4]])
    expected = trained(lambda: AccumulatingOptimizer(scaled(), 2), fed[2:4])
    assert np.all(seen[1]["table"] == np.float32(0.3))
    for name, value in expected[-1].items():
        np.testing.assert_array_equal(seen[-1][name], value, err_msg=name)


@pytest.mark.parametrize(("value", "every"), [(1.0, 4096), (30000.0, 4), (-65504.0, 3)])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_float16_gradients_are_summed_in_float32(value, every, sparse, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [1], tf.float16, initializer=tf.zeros_initializer())
        gradient = tf.constant([value], tf.float16)
        gradient = tf.IndexedSlices(gradient, tf.constant([0]), tf.constant([1])) if sparse else gradient
        step = AccumulatingOptimizer(tf.train.GradientDescentOptimizer(1.0), every).apply_gradients([(gradient, v)])
        session.run(tf.global_variables_initializer())
        run = session.make_callable(step)
        for _ in range(every):
            run()
        assert session.run(v) == [-value]


def test_the_moving_average_runs_with_the_applied_step_only(resource):
    def averaged(wrap, fed):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=1.0)
            x = tf.placeholder(tf.float32, [])
            optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(1.0))
            optimizer = wrap(optimizer)
            step = optimizer.minimize(w * x)
            average = tf.train.ExponentialMovingAverage(0.5)
            with tf.control_dependencies([step]):
                kept = optimizer.when_finite(lambda: average.apply([w]))
            session.run(tf.global_variables_initializer())
            seen = []
            for value in fed:
                session.run(kept, {x: value})
                seen.append(float(session.run(average.average(w))))
            return seen

    once = averaged(lambda optimizer: optimizer, [2.0, 4.0])
    seen = averaged(
        lambda optimizer: AccumulatingOptimizer(optimizer, 3), [1.0, 2.0, 3.0, np.inf, 1.0, 1.0, 5.0, 4.0, 3.0]
    )
    start, first, last = seen[0], once[0], once[1]
    np.testing.assert_allclose(seen, [1.0] * 2 + [first] * 6 + [last], rtol=1e-6)
    assert start == 1.0


def test_the_moving_average_of_an_unscaled_window(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w, count = tf.get_variable("w", initializer=1.0), tf.get_variable("count", initializer=0)
        optimizer = AccumulatingOptimizer(tf.train.GradientDescentOptimizer(0.1), 3)
        optimizer.minimize(w * w)
        counted = optimizer.when_finite(lambda: tf.assign_add(count, 1))
        session.run(tf.global_variables_initializer())
        for _ in range(7):
            session.run([counted, tf.get_collection(tf.GraphKeys.TRAIN_OP)])
        assert session.run(count) == 2


@pytest.mark.parametrize("every", [0, -1, 2.0, "2", None, True])
def test_a_window_of_no_whole_number_of_steps_is_an_error_in_the_user_s_words(every):
    with pytest.raises(ConfigError, match=re.escape("every=%r is not accepted, expected a whole number" % (every,))):
        AccumulatingOptimizer(tf.train.AdamOptimizer(), every)
    AccumulatingOptimizer(tf.train.AdamOptimizer(), np.int64(2))


def test_no_gradient_at_all_is_tensorflows_error():
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=1.0)
        messages = []
        for optimizer in (tf.train.AdamOptimizer(), AccumulatingOptimizer(tf.train.AdamOptimizer(), 2)):
            with pytest.raises(ValueError, match=r"(?i)no gradients provided for any variable") as raised:
                optimizer.apply_gradients([(None, v)])
            messages.append(str(raised.value))
        assert all("'v:0'" in message or "v:0" in message for message in messages)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_variable_of_unknown_shape(sparse, resource):
    def run(optimizer):
        with tf.Graph().as_default(), tf.Session() as session:
            start = tf.placeholder_with_default(np.full((3, 2), 0.3, "f"), None)
            v = tf.get_variable("v", initializer=start, validate_shape=False)
            rows = tf.placeholder(tf.int32, [None])
            table = tf.gather(v, rows) if sparse else v * tf.reduce_sum(tf.one_hot(rows, 3), 0)[:, None]
            step = optimizer().minimize(tf.reduce_sum(tf.square(table - 1.0)))
            session.run(tf.global_variables_initializer())
            for fed in ([0], [1]):
                session.run(step, {rows: fed})
            return session.run(v)

    momentum = lambda: tf.train.MomentumOptimizer(0.1, 0.9)  # noqa: E731
    np.testing.assert_allclose(run(lambda: AccumulatingOptimizer(momentum(), 1)), run(momentum), rtol=1e-6)


class Towers:
    """Two models with batch norm, each with its optimizer, in one graph.

    Without scopes no path says what belongs together, and batch norms have neither gamma nor beta.
    """

    def __init__(self, depends, resource, scoped=True):
        self.x = {name: tf.placeholder(tf.float32, [4, 3]) for name in "dg"}
        losses, updates, self.steps, self.averages = {}, {}, {}, {}
        for name, x in self.x.items():
            before = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
            prefix = name + ("/" if scoped else "_")
            kept = {"center": scoped, "scale": scoped}
            hidden = tf.layers.dense(x, 3, kernel_initializer=tf.ones_initializer(), name=prefix + "fc")
            hidden = tf.layers.batch_normalization(hidden, training=True, momentum=0.5, name=prefix + "bn", **kept)
            losses[name] = tf.reduce_mean(tf.square(hidden - x))
            updates[name] = [op for op in tf.get_collection(tf.GraphKeys.UPDATE_OPS) if op not in before]
        for name, loss in losses.items():
            manager = FixedLossScaleManager(1.0)
            optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager, protect_update_ops=True)
            weights, averages = (
                [v for v in variables if v.name.startswith(name)]
                for variables in (tf.trainable_variables(), tf.global_variables())
            )
            self.averages[name] = [v for v in averages if "moving" in v.name]
            every = [op for ops in updates.values() for op in ops]
            with tf.control_dependencies(updates[name] if depends == "own" else every):
                self.steps[name] = optimizer.minimize(loss, var_list=weights)

    def run(self, session, names, bad=()):
        good = np.arange(12, dtype="f").reshape(4, 3)
        feeds = {x: np.where(good == 5, np.inf, good) if name in bad else good for name, x in self.x.items()}
        session.run([self.steps[name] for name in names], feeds)
        return session.run(self.averages)


@pytest.mark.parametrize(("bad", "seen"), [(None, [1, 2, 3, 4]), (0, [0, 1, 2, 3]), (1, [1, 1, 2, 3])])
def test_a_window_undoes_the_updates_of_the_step_that_overflows_and_of_no_other(bad, seen):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        weight = tf.get_variable("n/w", [2], initializer=tf.ones_initializer())
        count = tf.get_variable("n/moving_count", [], initializer=tf.zeros_initializer(), trainable=False)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(count, 1.0))
        manager = FixedLossScaleManager(1.0)
        inner = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager, protect_update_ops=True)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            step = AccumulatingOptimizer(inner, 2).minimize(tf.reduce_sum(weight * x))
        session.run(tf.global_variables_initializer())
        counts = []
        for number in range(4):
            session.run(step, {x: [np.inf if number == bad else 1.0, 1.0]})
            counts.append(session.run(count))
        assert counts == seen


@pytest.mark.by_day("reference-own", "resource-all")
@pytest.mark.parametrize("depends", ["own", "all"])
def test_a_skipped_step_undoes_its_own_updates_and_no_others(depends, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        towers = Towers(depends, resource)
        assert [len(v) for v in towers.averages.values()] == [2, 2]
        session.run(tf.global_variables_initializer())
        expected = towers.run(session, "dg")
        for _ in range(8):  # a race was lost in five of six runs
            session.run(tf.global_variables_initializer())
            seen = towers.run(session, "dg", bad="d")
            np.testing.assert_array_equal(seen["g"], expected["g"])
            np.testing.assert_array_equal(seen["d"], [np.zeros(3), np.ones(3)])


def test_a_skipped_step_undoes_its_own_updates_where_no_scope_names_its_network(resource):
    """Batch norms without gamma and beta: nothing trained stands next to their averages."""
    with tf.Graph().as_default(), tf.Session() as session:
        towers = Towers("all", resource, scoped=False)
        assert [len(v) for v in towers.averages.values()] == [2, 2]
        session.run(tf.global_variables_initializer())
        expected = towers.run(session, "dg")
        for bad, other in ("dg", "gd"):
            session.run(tf.global_variables_initializer())
            seen = towers.run(session, "dg", bad=bad)
            np.testing.assert_array_equal(seen[other], expected[other])
            np.testing.assert_array_equal(seen[bad], [np.zeros(3), np.ones(3)])


def test_a_skipped_step_undoes_infinity_also_in_updates_of_an_optimizer_that_does_not_run(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        towers = Towers("all", resource)
        session.run(tf.global_variables_initializer())
        before = towers.run(session, "dg")
        seen = towers.run(session, "g", bad="dg")
        np.testing.assert_array_equal(seen["d"], before["d"])
        np.testing.assert_array_equal(seen["g"], before["g"])


def test_updates_beside_the_training_op_are_warned_of(caplog, resource):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 3])
        loss = tf.reduce_mean(tf.layers.batch_normalization(x, training=True))
        optimizer = LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(1.0), protect_update_ops=True
        )
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            optimizer.minimize(loss)
        assert "race" not in caplog.text
        optimizer.minimize(loss)
    assert "the training op does not wait for 2 update ops, such as 'batch_normalization/AssignMovingAvg" in caplog.text


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_overflow_anywhere_in_a_window_spoils_no_average(bad, resource):
    good = np.arange(12, dtype="f").reshape(4, 3)
    fed = [good * (number + 1) for number in range(3)]
    fed[bad] = np.where(good == 5, np.inf, good)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [4, 3])
        normed = tf.layers.batch_normalization(x, training=True, momentum=0.5)
        w = tf.get_variable("w", initializer=1.0)
        inner = LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.1), FixedLossScaleManager(1.0), protect_update_ops=True
        )
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            step = AccumulatingOptimizer(inner, 3).minimize(tf.reduce_sum(tf.square(normed) * w))
        session.run(tf.global_variables_initializer())
        mean, seen = named("batch_normalization/moving_mean:0"), []
        for values in fed:
            session.run(step, {x: values})
            seen.append(session.run(mean))
        assert np.all(np.isfinite(session.run(tf.global_variables()[0])))
        assert session.run(w) == 1.0
    now, expected = np.zeros(3, "f"), []
    for number, values in enumerate(fed):
        now = now if number == bad else (now + values.mean(axis=0)) / 2
        expected.append(now)
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
