"""`pjrt.attention.draws` in TensorFlow ops: which probabilities dropout keeps, bit for bit.

In int32, since TensorFlow's kernels for CPUs have no arithmetic on uint32 in every release.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.pjrt.attention import draws


def _right(word, bits):
    """A shift of int32 to the right with zeros shifted in."""
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(word, tf.constant(bits)), tf.constant((1 << (32 - bits)) - 1))


WORDS = draws.Words(
    tf.add, tf.bitwise.bitwise_xor, tf.bitwise.bitwise_or,
    lambda word, bits: tf.bitwise.left_shift(word, tf.constant(bits)), _right, tf.constant,
)  # fmt: skip


def kept(seed: Any, shape: Sequence[int], rate: float) -> Any:
    """Returns which probabilities are kept.

    Args:
        seed: tf.Tensor, int32 [2].
        shape: [batch, heads, queries, keys], numbers.
        rate: of dropout, 0 to 1.

    Returns:
        tf.Tensor of bool, of that shape.
    """
    batch, heads, queries, columns = (int(size) for size in shape)
    row = tf.reshape(tf.range(batch * heads * queries), [batch, heads, queries, 1])
    column = tf.reshape(tf.range(-(-columns // draws.PER_VALUE)), [1, 1, 1, -1])
    values = tf.stack(draws.threefry(WORDS, (seed[0], seed[1]), (row, column)), -1)
    halves = tf.stack([tf.bitwise.bitwise_and(values, tf.constant(0xFFFF)), _right(values, draws.BITS)], -1)
    flat = tf.reshape(halves, [batch, heads, queries, -1])
    return flat[..., :columns] < tf.constant(draws.threshold(rate))
