"""Random numbers of `npu_shim.step` are a session's: each op, dtype and kind of shape, run by run."""

import itertools
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import compared

FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
SHAPES = itertools.cycle([[], [0, 3], [1], [6], [2, 3, 3]])  # of no element, of less than a block, of some and a half
SHAPES_OF_GAMMA = [1e-3, 0.2, 0.99, 1.0, 1.01, 3.0, 50.0, 1e4]
RATES = [0.0, 0.3, 4.0, 9.99, 10.0, 30.0, 600.0]
LOGITS = np.random.RandomState(0).randn(3, 9).astype(np.float32)


def _filled():
    """Of stateful ops: of few blocks, and of a shape that is another one for each dtype."""
    for dtype in FLOATS:
        for shape in ([5, 7], next(SHAPES)):
            yield tf.random_uniform(shape, dtype=dtype, seed=3)
            yield tf.random_normal(shape, dtype=dtype, seed=4)
            yield tf.truncated_normal([*shape, 6], dtype=dtype, seed=5)
    for dtype in (tf.int32, tf.int64):
        for shape in ([5, 7], [], [0], [3]):
            yield tf.random_uniform(shape, -3, 1000, dtype=dtype, seed=3)
        yield tf.random_uniform([9], dtype.min, dtype.max, dtype=dtype, seed=3)


def _chosen():
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
        yield tf.random.categorical(tf.cast(LOGITS, dtype), 5, seed=6)
    yield tf.random.categorical(LOGITS, 0, seed=6)
    yield tf.random.categorical(LOGITS[:0], 3, seed=6)
    for rows in (np.arange(7), np.arange(12).reshape(6, 2), np.zeros(0, "f"), np.zeros((1, 3), "f"), np.zeros((4, 0))):
        yield tf.random_shuffle(rows, seed=9)
    yield tf.random_shuffle(tf.constant(3.0), seed=9)
    yield tf.nn.dropout(tf.ones([20]), rate=0.3, seed=8)
    yield tf.random.stateless_uniform([5], [2, -3])
    yield tf.random.stateless_truncated_normal([9], [2, 3])
    yield tf.random.stateless_categorical(LOGITS, 5, [4, 5])


def _tried_until_accepted():
    for dtype in (tf.float32, tf.float64, tf.float16) if os.environ.get("NPU_SHIM_NIGHTLY") else (tf.float32,):
        shapes, rates = (tf.constant(values, dtype) for values in (SHAPES_OF_GAMMA, RATES))
        yield tf.random.gamma([5, 40], shapes, dtype=dtype, seed=3)
        yield tf.random.gamma([], shapes, dtype=dtype, seed=4)
        yield tf.random.poisson(rates, [50], dtype=dtype, seed=5)
    yield tf.random.poisson([[3.0, 70.0]], [4], dtype=tf.int32, seed=6)
    yield tf.random.gamma([0], [2.0], seed=7)
    yield tf.random.stateless_gamma([30, 2], [2, 3], [0.5, 4.0])
    yield tf.raw_ops.StatelessRandomGammaV2(shape=[30, 2], seed=[2, 3], alpha=np.float32([0.5, 4.0]))
    yield tf.random.stateless_poisson([30], [2, 3], 4.0)


def test_random_numbers_are_tensorflows_own():
    with tf.Graph().as_default():
        tf.set_random_seed(7)
        drawn = [*_filled(), *_chosen(), *_tried_until_accepted()]
        compared([value if value.dtype != tf.bfloat16 else tf.cast(value, tf.float32) for value in drawn], runs=3)
