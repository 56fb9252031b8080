"""The incoming gradient of a loss (`grad_loss`), which is as wide as the scaled loss."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import (
    AccumulatingOptimizer,
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    NPULossScaleOptimizer,
)
from npu_shim.loss_scale.managers import contrib


def exponential():
    return ExponentialUpdateLossScaleManager(2.0**10, 1000)


NARROW_STARTS = {
    "tensor": lambda w, dtype: tf.constant([1.0, 10.0], dtype),
    "list": lambda w, dtype: [tf.constant([1.0, 10.0], dtype)],
    "depends on the weights": lambda w, dtype: tf.cast(w * w - [0.0, -6.0], dtype),
}


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("start", sorted(NARROW_STARTS))
def test_grad_loss_of_any_float_dtype(resource, start, dtype):
    """A narrow loss is scaled in float32, and its incoming gradient is one of float32."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        given = NARROW_STARTS[start](w, dtype)
        loss = tf.cast(w * w, dtype)
        (gradient, _), = optimizer.compute_gradients([loss] if start == "list" else loss, grad_loss=given)
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(gradient), [2.0, 40.0])


@pytest.mark.parametrize("shapes", ["equal", "different"])
def test_grad_loss_of_several_losses(resource, shapes):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        half = tf.cast(w, tf.float16)
        losses = [half * half, half if shapes == "equal" else tf.reduce_sum(half), 3.0 * half]
        starts = [tf.constant([1.0, 10.0], tf.float16), None, tf.constant([1.0, 2.0], tf.float16)]
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        (gradient, _), = optimizer.compute_gradients(losses, grad_loss=starts)
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(gradient), [2.0 + 1.0 + 3.0, 40.0 + 1.0 + 6.0])
        with pytest.raises(ValueError, match="2 gradients for 3 losses"):
            optimizer.compute_gradients(losses, grad_loss=starts[:2])


WRAPPED_STARTS = {
    "npu": lambda opt: NPULossScaleOptimizer(opt, FixedLossScaleManager(128.0)),
    "contrib": lambda opt: contrib.LossScaleOptimizer(opt, contrib.FixedLossScaleManager(128.0)),
    "accumulating": lambda opt: AccumulatingOptimizer(NPULossScaleOptimizer(opt, FixedLossScaleManager(128.0)), 1),
}


@pytest.mark.parametrize("called", [False, True], ids=["tensor", "function"])
@pytest.mark.parametrize("kind", sorted(WRAPPED_STARTS))
def test_a_float16_loss_with_a_float16_grad_loss_trains_as_in_plain_tensorflow(resource, kind, called):
    if called and not resource:
        pytest.skip("TensorFlow's own optimizers take no function as loss with reference variables")

    def trained_by(wrap):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=[1.0, 2.0, 3.0])
            loss = lambda: tf.cast(tf.reduce_sum(w * w), tf.float16)  # noqa: E731
            optimizer, start = wrap(tf.train.GradientDescentOptimizer(0.125)), tf.constant(2.0, tf.float16)
            step = optimizer.minimize(loss if called else loss(), var_list=[w], grad_loss=start)
            session.run(tf.global_variables_initializer())
            session.run(step)
            return session.run(w)

    np.testing.assert_array_equal(trained_by(WRAPPED_STARTS[kind]), trained_by(lambda opt: opt))
