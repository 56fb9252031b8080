"""Slices at places that are computed, and their gradients, as interpreted steps beside sessions."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step, compared, fed  # noqa: E402

DRAW = np.random.RandomState(0)
GIVEN = DRAW.randn(8, 6, 3).astype(np.float32)
WEIGHTS = DRAW.randn(3, 3).astype(np.float32)


def cropped(y):
    return tf.random_crop(y, [5, 4, 3], seed=4)


def at_the_largest(y):
    """To the end of an axis that begins at a known place, too."""
    return tf.slice(y, [tf.argmax(y[:4, 0, 0], output_type=tf.int32), 1, 0], [2, -1, 3])


def at_a_counter(y):
    def body(at, h):
        return at + 1, tf.tanh(h + tf.slice(y, [0, at, 0], [8, 1, 3])[:, 0])

    return tf.while_loop(lambda at, h: at < 5, body, [1, tf.zeros([8, 3])])[1]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("taken", [cropped, at_the_largest, at_a_counter])
def test_the_gradient_of_a_slice_at_a_computed_place(taken, version, request):
    request.getfixturevalue("control_flow_of_version_%d" % version)
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        x, given = fed(GIVEN)
        w = tf.get_variable("w", initializer=WEIGHTS)
        y = taken(tf.tensordot(x, w, 1))
        compared([y, *tf.gradients(tf.reduce_sum(tf.square(y)), [w, x])], {x: given}, tolerance=1e-5, runs=2)


def test_a_slice_at_a_place_that_is_not_there_gives_nan():  # where TensorFlow ends the step with an error
    with tf.Graph().as_default() as graph:
        x, _ = fed(GIVEN[:, 0])
        y = tf.slice(x, [tf.cast(x[0, 0], tf.int32), 0], [3, 3])
        step = Step(graph, [y, tf.gradients(y, x)[0]], (), [x])
        for first, is_there in ((0, True), (5, True), (6, False), (-1, False)):
            value = GIVEN[:, 0].copy()
            value[0, 0] = first
            taken, gradient = step({x: value})
            assert np.isnan(taken).any() == np.isnan(gradient).any() == (not is_there)
            if is_there:
                np.testing.assert_array_equal(taken, value[first : first + 3])
                np.testing.assert_array_equal(gradient[:, 0], np.eye(8)[first : first + 3].sum(0))


def test_a_mask_in_floating_point_leaves_nothing_that_is_not_finite_out():
    """The gradient of a largest element that is NaN, and what a mask multiplies: XLA would choose one of two."""
    with tf.Graph().as_default():
        x, given = fed(np.float32([[1, np.nan, 3], [3, 3, 1], [np.inf, 0, -np.inf]]))
        mask = tf.cast(x > 2, tf.float32)
        half = tf.cast(x > 2, tf.float16) * tf.cast(x, tf.float16)
        fetches = [mask * x, half, *(tf.gradients(tf.reduce_max(x, axis), x)[0] for axis in (0, 1))]
        compared(fetches, {x: given})
