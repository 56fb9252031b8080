"""Sums of rows by segment, as embedding_lookup_sparse makes them, and their gradients.

XLA must know the number of segments. If the op does not specify it, it is the last segment id plus 1; the engine gives
it as an attribute (`site.ROWS`).
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.ops import sums
from npu_shim.xla.passes.legalize.site import ROWS, Site

SUM, MEAN, SQRT_N = (lambda n: None), (lambda n: 1 / n), tf.rsqrt  # factor for a sum of n rows


def sparse(scale: Any) -> Callable[[Site], Any]:
    """Makes the table row of an op on rows data[indices[k]] of the segments segment_ids[k]."""

    def lowered(site):
        data, indices, segments = site.inputs[:3]
        count = _count(site, 3) if len(site.inputs) == 4 else _last(site, 2)
        return _scaled(scale, sums.by_segment(_wide(tf.gather(data, indices)), segments, count), segments, data.dtype)

    return lowered


def dense(scale: Any) -> Callable[[Site], Any]:
    """Makes the table row of an op on rows data[k] of the segments segment_ids[k]."""

    def lowered(site):
        data, segments = site.inputs
        return _scaled(scale, sums.by_segment(_wide(data), segments, _last(site, 1)), segments, data.dtype)

    return lowered


def gradient(scale: Any) -> Callable[[Site], Any]:
    """Makes the table row of a gradient: each summed row gets its segment's gradient."""

    def lowered(site):
        given, indices, segments, count = site.inputs
        return tf.cast(sums.by_segment(_spread(scale, given, segments), indices, count), given.dtype)

    return lowered


def gradient_by_row(scale: Any) -> Callable[[Site], Any]:
    """Makes the table row of a gradient with its indices: a row for each, also where one comes again (repeated.py)."""

    def lowered(site):
        given, indices, segments, _ = site.inputs
        return [tf.cast(_spread(scale, given, segments), given.dtype), tf.identity(indices)]

    return lowered


def _spread(scale, given, segments):
    """The gradient of each summed row."""
    rows = _wide(tf.gather(given, segments))
    factor = scale(_sizes(segments, tf.shape(given)[0], rows.dtype))
    return rows if factor is None else sums.times_rows(tf.gather(factor, segments), rows)


def _scaled(scale, summed, segments, dtype):
    factor = scale(_sizes(segments, tf.shape(summed)[0], summed.dtype))
    return tf.cast(summed if factor is None else sums.times_rows(factor, summed), dtype)


def _sizes(segments, count, dtype):
    """The number of rows of each segment, at least 1."""
    return tf.maximum(tf.math.unsorted_segment_sum(tf.ones_like(segments, dtype), segments, count), 1)


def _wide(rows):
    return tf.cast(rows, tf.float32) if rows.dtype in sums.LOW else rows


def _count(site, number):
    return int(site.constant(number)) if number in site.constants else site.inputs[number]


def _last(site, number):
    if ROWS in site.node.attrs:
        return site.attr(ROWS)
    segments = site.constants.get(number)
    if segments is None:
        reason = (
            "its number of rows follows from the last segment id, which is data; use unsorted_segment_sum, or give "
            "num_segments if the op takes it, feed its result, or run the step in the session"
        )
        raise site.not_counted(number, reason)
    return int(segments[-1]) + 1 if segments.size else 0
