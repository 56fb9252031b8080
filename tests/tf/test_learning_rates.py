"""A learning rate that the script changes: with a loss scale it is read where the optimizer itself reads it."""

import time

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import AccumulatingOptimizer, FixedLossScaleManager, LossScaleOptimizer, automatic

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1")


def scaled(optimizer):
    return LossScaleOptimizer(optimizer, FixedLossScaleManager(1024.0))


WAYS = {
    "scaled": scaled,
    "accumulating": lambda optimizer: AccumulatingOptimizer(optimizer, 1),
    "both": lambda optimizer: AccumulatingOptimizer(scaled(optimizer), 1),
    "automatic": lambda optimizer: optimizer,
}


@pytest.fixture(params=sorted(WAYS))
def way(request):
    if request.param == "automatic":
        automatic.install(1024.0)
    yield WAYS[request.param]
    automatic.uninstall()


def variables():
    """Returns (a weight of 0, a rate of 1); a step without waiting adds the rate to the weight."""
    w = tf.get_variable("w", initializer=0.0, use_resource=True)
    return w, tf.get_variable("rate", initializer=1.0, use_resource=True, trainable=False)


def late(value):
    """Returns a value that comes so late that what does not wait for it is done before."""

    def function(now):
        time.sleep(0.05)
        return np.float32(now)

    return tf.reshape(tf.py_func(function, [value], tf.float32), [])


def weight_after(steps, train, w):
    with sessions.started() as session:
        for _ in range(steps):
            session.run(train)
        return session.run(w)


@pytest.mark.parametrize("given", [lambda rate: rate, lambda rate: lambda: 2.0 * rate], ids=["variable", "function"])
def test_a_rate_that_a_step_waits_for_is_the_new_one(way, given):
    with tf.Graph().as_default():
        w, rate = variables()
        optimizer = way(tf.train.GradientDescentOptimizer(given(rate)))
        pairs = optimizer.compute_gradients(-w)
        with tf.control_dependencies([rate.assign(late(rate.read_value() * 0.5))]):
            train = optimizer.apply_gradients(pairs)
        assert weight_after(3, train, w) == 0.875 * (1.0 if given(rate) is rate else 2.0)


def test_a_rate_in_a_loop_is_read_in_each_iteration(way):
    with tf.Graph().as_default():
        w, rate = variables()
        optimizer = way(tf.train.GradientDescentOptimizer(rate))

        def body(i):
            with tf.control_dependencies([rate.assign(rate.read_value() * 0.5)]):
                pairs = list(zip(tf.gradients(-w.read_value(), w), [w]))
                with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
                    return i + 1

        train = tf.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1)
        assert weight_after(1, train, w) == 0.875


def test_each_use_of_an_optimizer_reads_its_rate_again(way):
    with tf.Graph().as_default():
        w, rate = variables()
        optimizer = way(tf.train.GradientDescentOptimizer(rate))
        first = optimizer.minimize(-w)
        with tf.control_dependencies([first]), tf.control_dependencies([rate.assign(0.25)]):
            second = optimizer.minimize(-w)
        assert weight_after(1, second, w) == 1.25


def test_the_rate_can_be_fetched_when_the_step_is_built_in_a_branch():
    with tf.Graph().as_default():
        w, rate = variables()
        optimizer = scaled(tf.train.AdamOptimizer(rate * 3.0))
        train = tf.cond(tf.placeholder_with_default(True, []), lambda: optimizer.minimize(-w), tf.no_op)
        assert weight_after(1, [train, optimizer.learning_rate], w) == pytest.approx(3.0)
