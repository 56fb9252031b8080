"""What the session does for a step of engine pjrt, since XLA would do something else without an error.

Assertions about what is known before a step fire in engine pjrt too, and so does tf.check_numerics wherever it stands.
"""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine

pytestmark = [
    *sessions.NEEDS_ENGINE,
    pytest.mark.usefixtures("patched", "own_graph", "control_flow_of_version_1"),
]
X = np.ones([8, 4], np.float32)
SIGNS = 1, -1, 1


def told(kind, step, feeds):
    """(for each run whether the assertion fired, and the variables behind it; how many runs were taken)."""
    states = []
    with sessions.opened(kind) as session:
        for fed in feeds:
            try:
                session.run(step, fed)
                fired = False
            except tf.errors.InvalidArgumentError as error:
                fired = "assertion failed" in str(error) or "is wrong" in str(error)
            states.append((fired, session.run(tf.global_variables())))
        known = vars(session)[engine.ENGINE].known.values() if kind == "pjrt" else ()
        return states, sum(run.step is not None for run in known)


def require_same(step, feeds, count=1):
    """The assertion fires in the second of three runs, and the step's updates are those of a session.

    `count` runs are taken by the engine.
    """
    wanted, _ = told("session", step, feeds)
    actual, taken = told("pjrt", step, feeds)
    assert [fired for fired, _ in wanted] == [False, True, False]
    assert [fired for fired, _ in actual] == [fired for fired, _ in wanted]
    for (_, expected), (_, values) in zip(wanted, actual):
        sessions.assert_close(values, expected, rtol=1e-5)
    assert taken == count


def trained(inputs):
    """A training step on inputs of 4 columns."""
    weights = tf.get_variable("w", [4, 2], initializer=tf.random_normal_initializer(seed=1))
    loss = tf.reduce_mean(tf.square(tf.matmul(inputs, weights) - 1))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())


def test_an_assertion_about_floats_that_are_fed_fires_before_the_step():
    x = tf.placeholder(tf.float32, [None, 4])
    with tf.control_dependencies([tf.debugging.assert_positive(x)]):
        step = trained(tf.identity(x))
    require_same(step, [{x: sign * X} for sign in SIGNS])


def test_an_assertion_about_fed_floats_fires_in_control_flow_of_version_2():
    x = tf.placeholder(tf.float32, [None, 4])
    with sessions.control_flow(2), tf.control_dependencies([tf.debugging.assert_positive(x)]):
        step = trained(tf.identity(x))
    require_same(step, [{x: sign * X} for sign in SIGNS])


def test_an_assertion_about_a_datasets_floats_fires():
    rows = np.concatenate([sign * X for sign in SIGNS])
    batch = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(rows).batch(8)).get_next()
    with tf.control_dependencies([tf.Assert(tf.reduce_all(batch > 0), [batch])]):
        step = trained(batch * 2)
    require_same(step, [{} for _ in SIGNS])


def test_an_assertion_in_a_branch_of_the_script_fires_if_the_branch_is_taken():
    x, checks = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.bool, [])

    def checked():
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return tf.identity(x)

    step = trained(tf.cond(checks, checked, lambda: 2 * x))
    require_same(step, [{x: -X, checks: False}, {x: -X, checks: True}, {x: X, checks: True}])


def test_an_assertion_in_front_of_a_function_and_of_the_step_fires():
    x = tf.placeholder(tf.float32, [None, 4])
    with tf.control_dependencies([tf.debugging.assert_positive(x)]):
        doubled, same = tf.py_func(lambda value: 2 * value, [x], tf.float32), tf.identity(x)
    doubled.set_shape([None, 4])
    require_same(trained(doubled + same), [{x: sign * X} for sign in SIGNS])


def test_an_assertion_beside_the_step_fires():
    x = tf.placeholder(tf.float32, [None, 4])
    check = tf.debugging.assert_positive(x)
    with tf.control_dependencies([check]):
        step = tf.group(trained(x), tf.no_op())
    wanted, actual = (told(kind, [step, check], [{x: sign * X} for sign in SIGNS])[0] for kind in ("session", "pjrt"))
    assert [fired for fired, _ in actual] == [fired for fired, _ in wanted] == [False, True, False]


def asserted_behind_a_step(kind):
    x, holds = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.bool, [])
    feeds = [{x: sign * X, holds: sign > 0} for sign in SIGNS]
    if kind == "of a dataset":
        rows = np.concatenate([sign * X for sign in SIGNS])
        x = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(rows).batch(8)).get_next()
        feeds = [{} for _ in SIGNS]
    condition = holds if kind == "fed" else tf.reduce_all(x > 0)
    first = trained(x)
    weights, step = tf.global_variables()
    with tf.control_dependencies([first]):
        check = tf.Assert(condition, [tf.matmul(x, weights.read_value())])
    with tf.control_dependencies([check]):
        last = tf.assign_add(step, 10)
    require_same(last.op, feeds)


@pytest.mark.by_day("of a dataset-1", "fed-2", "computed-1")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", ["fed", "computed", "of a dataset"])
def test_an_assertion_that_would_show_a_result_fires_behind_what_does_not_wait_for_it(kind, version):
    with sessions.control_flow(version):
        asserted_behind_a_step(kind)


def checked_input(x):
    return trained(tf.check_numerics(tf.log(x), "what is fed is wrong"))


def checked_layer(x):
    hidden = tf.layers.dense(tf.log(x), 4, kernel_initializer=tf.ones_initializer(), use_bias=False)
    return trained(tf.check_numerics(hidden, "the layer is wrong"))


def checked_loss(x):
    """As tf_slim's create_train_op does it: behind the update."""
    step = trained(x)
    loss = tf.check_numerics(tf.log(tf.reduce_mean(tf.matmul(x, tf.ones([4, 1])))), "the loss is wrong")
    with tf.control_dependencies([step]):
        return tf.identity(loss)


def checked_in_loop(x):
    def body(k, _):
        return k + 1, tf.check_numerics(tf.log(x), "the loop is wrong")

    return trained(tf.while_loop(lambda k, _: k < 2, body, (0, x), maximum_iterations=2)[1])


@pytest.mark.parametrize(
    ("build", "count"), [(checked_input, 1), (checked_layer, 1), (checked_loss, 1), (checked_in_loop, 0)],
    ids=["input", "layer", "loss", "loop"],
)  # fmt: skip
def test_a_check_of_numbers_fires_with_the_state_of_a_session(build, count):
    """Regression: a step with NaN went on, and its weights were NaN."""
    x = tf.placeholder(tf.float32, [None, 4])
    require_same(build(x), [{x: sign * X} for sign in SIGNS], count)


def test_checks_of_all_tensors_fire_and_do_not_keep_a_step_from_the_engine():
    x = tf.placeholder(tf.float32, [None, 4])
    tf.log(x, name="logarithm")
    step = trained(x)
    everything = tf.group(step, tf.add_check_numerics_ops())
    feeds = [{x: sign * X} for sign in SIGNS]
    (wanted, _), (actual, taken) = (told(kind, everything, feeds) for kind in ("session", "pjrt"))
    assert [fired for fired, _ in actual] == [fired for fired, _ in wanted]
    assert taken == 1


PARTS = {
    "to": lambda rows, n: rows[: n + 2],
    "from and to": lambda rows, n: rows[None, n - 1 : n + 1],
    "of a row": lambda rows, n: rows[0, :n],
    "columns": lambda rows, n: rows[..., :n],
    "columns of some rows": lambda rows, n: rows[2:5, :n],
}


@pytest.mark.by_day("from and to", "columns of some rows", "to")
@pytest.mark.parametrize("name", PARTS)
def test_a_slice_beyond_the_end_has_the_rows_that_there_are(name):
    """Regression: rows of zeros were counted, so a mean was another."""
    x, chosen = tf.placeholder(tf.float32, [8, 4]), tf.placeholder(tf.float32, [8])
    weights = tf.get_variable("w", [4, 4], initializer=tf.random_normal_initializer(seed=1))
    part = PARTS[name](tf.matmul(x, weights), tf.reduce_sum(tf.cast(chosen > 0, tf.int32)))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights))) + tf.cast(tf.size(part), tf.float32)
    loss += tf.stop_gradient(tf.reduce_sum(part))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    rows = np.arange(32, dtype=np.float32).reshape(8, 4) / 32

    def losses(kind):
        with sessions.opened(kind) as session:
            lost = [session.run([loss, step], {x: rows, chosen: np.arange(8) < n})[0] for n in (1, 3, 6, 8)]
            known = vars(session)[engine.ENGINE].known.values() if kind == "pjrt" else ()
            return lost, sum(run.step is not None for run in known)

    (wanted, _), (actual, taken) = losses("session"), losses("pjrt")
    np.testing.assert_allclose(actual, wanted, rtol=1e-5)
    assert taken == 1


def test_numbers_drawn_from_a_seed_are_those_of_an_evaluation():
    """A fixed random projection was another one in the training steps."""
    x = tf.placeholder(tf.float32, [None, 4])
    projection = tf.random.stateless_normal([4, 4], [5, 6]) * tf.random.stateless_uniform([4], [1, 2])
    projected = tf.matmul(x, projection)
    step = trained(projected)
    with sessions.opened() as session:
        _, training = session.run([step, projected], {x: X})
        np.testing.assert_allclose(training, session.run(projected, {x: X}), rtol=1e-5)
        assert [known.step is not None for known in vars(session)[engine.ENGINE].known.values()].count(True) == 1


def test_a_counter_ends_the_training():
    x = tf.placeholder(tf.float32, [None, 4])
    counted = tf.count_up_to(tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False), 2)
    with tf.control_dependencies([counted]):
        step = trained(x)
    with sessions.opened() as session:
        for _ in range(2):
            session.run(step, {x: X})
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(step, {x: X})
