"""Sums over windows in compiled steps, behind padding: XLA takes one row between zeros for a row in each window."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")


def cumulative(x, v):
    return tf.gradients(tf.reduce_sum(tf.square(tf.cumsum(x * v)[2])), v)[0]


def padded(x, v):
    return tf.cumsum(tf.pad((x[0] * v)[None], [[2, 2], [0, 0]]))


def within_a_function(x, v):
    return tf.function(padded)(x, v)


def padded_by_ones(x, v):
    return tf.math.cumprod(tf.pad((x[1] * v)[None], [[2, 2], [0, 0]], constant_values=1.0))


def pooled(x, v):
    image = tf.pad(tf.reshape(x[1] * v, [1, 1, 1, 4]), [[0, 0], [2, 2], [2, 2], [0, 0]])
    return tf.nn.avg_pool2d(image, 3, 1, "SAME")


@pytest.mark.parametrize("engine", ["tensorflow", pytest.param("pjrt", marks=sessions.NEEDS_ENGINE)])
@pytest.mark.parametrize("build", [cumulative, padded, within_a_function, padded_by_ones, pooled])
def test_a_padded_row_is_in_the_windows_that_contain_it(build, engine):
    with tf.Graph().as_default() as graph:
        x, v = tf.placeholder(tf.float32, [5, 4], "x"), tf.placeholder(tf.float32, [4], "v")
        tf.identity(build(x, v), "y")
    feeds = {"x:0": np.arange(20, dtype=np.float32).reshape(5, 4) / 20, "v:0": np.float32([1, 2, 3, 4])}
    with tf.Session(graph=graph) as session:
        expected = session.run("y:0", feeds)
    np.testing.assert_allclose(npu_shim.compile_step(graph, "y:0", ["x", "v"], engine=engine)(feeds), expected, 1e-6)
