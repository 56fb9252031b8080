"""Steps whose updates are in a tf.function of a TensorFlow 1 graph: taken, with the session's numbers and order."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph")]
STEPS = 3
BATCHES = [np.random.RandomState(at).randn(8, 6).astype("f") for at in range(STEPS)]


def layer():
    """(placeholder, weights, bias)."""
    tf.set_random_seed(3)
    weights = tf.get_variable("w", [6, 3], use_resource=True)
    bias = tf.get_variable("b", initializer=np.zeros(3, "f"), use_resource=True)
    return tf.placeholder(tf.float32, [None, 6]), weights, bias


def trained(kind, x, fetches, mode):
    """(what the steps give and leave in the variables, why the last run is no step, "" if it is one)."""
    with sessions.opened(kind, mode) as session:
        results = [value for batch in BATCHES for value in session.run(fetches, {x: batch})]
        known = vars(session).get(engine.ENGINE)
        reason = "" if known is None else [*known.known.values()][-1].reason
        return results + session.run(tf.global_variables()), reason


def compared(x, fetches, mode="must_keep_origin_dtype", rtol=1e-5):
    """Why the engine does not take the run, "" if it does; its numbers are the session's."""
    wanted, _ = trained("session", x, fetches, mode)
    actual, reason = trained("pjrt", x, fetches, mode)
    sessions.assert_close(actual, wanted, rtol=rtol, atol=rtol)
    return reason


@pytest.mark.parametrize("mode", ["must_keep_origin_dtype", "allow_mix_precision"])
def test_an_optimizer_in_a_function(mode):
    x, weights, bias = layer()
    optimizer = tf.train.AdamOptimizer(0.1)

    @tf.function
    def train(x):
        loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, weights) + bias) - x[:, :3]))
        with tf.control_dependencies([optimizer.minimize(loss, var_list=[weights, bias])]):
            return tf.identity(loss), tf.reduce_sum(weights)

    assert compared(x, train(x), mode, 1e-5 if "origin" in mode else 1e-3) == ""


def test_reads_and_writes_in_the_order_of_the_lines():
    x, weights, bias = layer()

    @tf.function
    def train(x):
        first = tf.reduce_sum(tf.matmul(x, weights) + bias)
        bias.assign(bias + 1.0)
        second = tf.reduce_sum(bias * 2)
        bias.assign_sub(0.5 * bias)
        weights.assign_add(0.01 * tf.matmul(x, x, transpose_a=True)[:, :3])
        third = tf.reduce_sum(tf.matmul(x, weights) + bias)
        bias.assign(bias * bias)
        return first, second, third

    assert compared(x, train(x)) == ""


def test_functions_that_call_others_and_decide():
    x, weights, bias = layer()

    @tf.function
    def apply(gradients):
        weights.assign_sub(0.1 * gradients[0])
        bias.assign_sub(0.1 * gradients[1])
        return tf.reduce_sum(weights)

    @tf.function
    def train(x):
        outputs = tf.matmul(x, weights) + bias
        loss = tf.cond(
            tf.reduce_sum(x) > 0, lambda: tf.reduce_mean(outputs**2), lambda: tf.reduce_mean(tf.abs(outputs))
        )
        return loss, apply(tf.gradients(loss, [weights, bias]))

    assert compared(x, train(x)) == ""


def test_each_call_of_a_function_draws_on_its_own():
    x, weights, bias = layer()

    @tf.function
    def train(x):
        kept = tf.nn.dropout(tf.matmul(x, weights) + bias, rate=0.3, seed=5)
        loss = tf.reduce_mean(tf.square(kept))
        for variable, gradient in zip([weights, bias], tf.gradients(loss, [weights, bias])):
            variable.assign_sub(0.1 * gradient)
        return loss

    one = train(x)
    with tf.control_dependencies([one]):
        other = train(x)
    assert compared(x, [one, other]) == ""


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        (lambda value: tf.py_function(lambda v: v, [value], tf.float32), "EagerPyFunc"),
        (
            lambda value: tf.raw_ops.ParameterizedTruncatedNormal(
                shape=[1], means=value, stdevs=1.0, minvals=-9.0, maxvals=9.0, seed=1, seed2=2
            ),
            "ParameterizedTruncatedNormal",
        ),
    ],
)
def test_what_must_run_in_the_session_in_a_function_leaves_the_step_to_it(inside, reason):
    x, weights, _ = layer()

    @tf.function
    def train(x):
        loss = tf.reduce_sum(tf.matmul(x, weights))
        weights.assign_sub(tf.gradients(loss, [weights])[0])
        return loss, inside(loss) * 0

    reason_given = compared(x, train(x))
    assert "StatefulPartitionedCall" in reason_given
    assert reason in reason_given


def test_a_function_that_learns_nothing_is_no_step():
    x, weights, _ = layer()
    fetched = tf.function(lambda x: weights.assign(weights * 0.5 + tf.reduce_sum(x)))(x)
    assert "little work: no product before what it writes, and 3 floating-point ops" in compared(x, [fetched])


def test_checks_of_numbers_in_a_function_fire_and_leave_the_variables_as_they_were():
    x, weights, _ = layer()

    @tf.function
    def train(x):
        loss = tf.debugging.check_numerics(tf.reduce_sum(tf.matmul(x, weights)), "the loss")
        kept = tf.random.uniform([3], seed=5)
        weights.assign_sub(0.1 * tf.gradients(loss, [weights])[0] * kept)
        return loss

    fetched = train(x)
    assert compared(x, [fetched]) == ""
    with sessions.opened() as session:
        first = session.run(fetched, {x: BATCHES[0]})
        before = session.run(weights)
        with pytest.raises(tf.errors.InvalidArgumentError, match="the loss : Tensor had NaN"):
            session.run(fetched, {x: BATCHES[1] * np.float32(np.nan)})
        np.testing.assert_array_equal(session.run(weights), before)
        session.run(fetched, {x: BATCHES[1]})
        assert [*vars(session)[engine.ENGINE].known.values()][-2].step
        after = session.run(weights)
    with sessions.opened("session") as session:
        assert session.run(fetched, {x: BATCHES[0]}) == pytest.approx(first, 1e-5)
        session.run(fetched, {x: BATCHES[1]})
        np.testing.assert_allclose(session.run(weights), after, rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.0])
def test_a_check_on_the_side_that_is_not_taken_does_not_fire(value):
    x, weights, _ = layer()

    @tf.function
    def train(x):
        loss = tf.reduce_sum(tf.matmul(x, weights))
        checked = tf.cond(x[0, 0] > 0, lambda: tf.debugging.check_numerics(x[1, 0], "x"), lambda: x[1, 0])
        weights.assign_sub(0.1 * tf.gradients(loss, [weights])[0])
        return loss, checked

    batch = np.abs(BATCHES[0])
    batch[1, 0] = value
    fetched = train(x)
    with sessions.opened() as session:
        session.run(fetched, {x: -batch})
        if np.isfinite(value):
            session.run(fetched, {x: batch})
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="x : Tensor had"):
                session.run(fetched, {x: batch})
        assert [*vars(session)[engine.ENGINE].known.values()][-1].step
