"""Finds repeated indices without shapes that depend on data.

XLA's own Unique (TensorFlow 2.15.1) takes time quadratic in the number of values: 6 s for 65,536. A sort does not.
XLA's cumulative ops are quadratic on CPUs too, so the running maximum doubles its span in each pass, after
Hillis and Steele.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def runs(values: Any) -> tuple[Any, Any, Any]:
    """Sorts values and finds runs of equal ones.

    Args:
        values: int tensor [n] with a static n.

    Returns:
        (values in falling order, their original positions, the start of each one's run): [n] each, int32 positions.
        Within a run the original positions rise.
    """
    count = values.shape[0]
    ordered, order = tf.raw_ops.TopKV2(input=values, k=count)  # stable: equal values keep their order
    first = tf.concat([tf.ones([min(count, 1)], tf.bool), tf.not_equal(ordered[1:], ordered[:-1])], 0)
    return ordered, order, running_maximum(tf.where_v2(first, tf.range(count), 0))


def running_maximum(values: Any) -> Any:
    """Returns the running maximum of a nonnegative int32 tensor [n]."""
    step, count = 1, values.shape[0]
    while step < count:
        values = tf.maximum(values, tf.concat([tf.zeros([step], values.dtype), values[:-step]], 0))
        step *= 2
    return values


def back(order: Any, sorted_values: Any) -> Any:
    """Undoes a sort: result[order[k]] = sorted_values[k]."""
    return tf.scatter_nd(order[:, tf.newaxis], sorted_values, tf.shape(sorted_values))


def occurrence(values: Any) -> Any:
    """Returns how many equal values precede each of the int values [n], int32 [n]."""
    _, order, starts = runs(values)
    return back(order, tf.range(values.shape[0]) - starts)
