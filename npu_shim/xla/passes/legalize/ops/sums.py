"""Sums in the order of TensorFlow's CPU kernels, one row after another, and in their dtypes."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.site import Site

LOW = (tf.float16, tf.bfloat16)
WIDE = {  # what the sum of a mean is computed in; other dtypes are their own
    **dict.fromkeys([tf.int8, tf.int16, tf.int32], tf.int64),
    **dict.fromkeys([tf.uint8, tf.uint16, tf.uint32], tf.uint64),
}


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


def mean(site: Site) -> Any:
    """The mean of integers or complex numbers: XLA's sum of integers wraps around, and its mean of nothing is no 0."""
    values, axes = site.inputs
    wide = tf.cast(values, WIDE.get(values.dtype, values.dtype))
    total = tf.raw_ops.Sum(input=wide, axis=axes, keep_dims=site.attr("keep_dims"))
    # tf.size would take the most rows that there may be for the rows that there are
    size, means = (tf.raw_ops.Size(input=tensor, out_type=tf.int64) for tensor in (wide, total))
    count = tf.maximum(size // tf.maximum(means, 1), 1)
    return tf.cast(tf.raw_ops.Div(x=total, y=tf.cast(count, total.dtype)), values.dtype)
