"""Sums rows in the order of TensorFlow's CPU kernels: one row after another, low-precision dtypes in float32."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

LOW = (tf.float16, tf.bfloat16)


def by_segment(rows: Any, segments: Any, count: Any) -> Any:
    """Returns the sums [count, ...] of rows [n, ...] with the same segment [n]."""
    dtype = rows.dtype
    rows = tf.cast(rows, tf.float32) if dtype in LOW else rows
    return tf.cast(tf.math.unsorted_segment_sum(rows, segments, count), dtype)


def times_rows(numbers: Any, rows: Any) -> Any:
    """Returns rows [n, ...], each multiplied by one of numbers [n]."""
    if rows.shape.rank is None:
        return tf.reshape(numbers, tf.concat([tf.shape(numbers), tf.ones([tf.rank(rows) - 1], tf.int32)], 0)) * rows
    for _ in range(rows.shape.rank - 1):
        numbers = tf.expand_dims(numbers, -1)
    return numbers * rows
