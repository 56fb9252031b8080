"""Sparse tensors: indices [n, rank], values [n] and a shape, which XLA must know when it compiles."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize import duplicates
from npu_shim.xla.passes.legalize.ops import sums
from npu_shim.xla.passes.legalize.site import Site


def dense_product(site: Site) -> Any:
    """Multiplies a sparse by a dense matrix: sums rows of the dense one, each times a value, by sparse row."""
    indices, values, _, dense = site.inputs
    row, column = (1, 0) if site.attr("adjoint_a") else (0, 1)
    values = tf.math.conj(values) if site.attr("adjoint_a") else values
    dense = tf.linalg.adjoint(dense) if site.attr("adjoint_b") else dense
    dtype = dense.dtype
    if dtype in sums.LOW:  # the kernel multiplies and sums in float32
        values, dense = tf.cast(values, tf.float32), tf.cast(dense, tf.float32)
    places = tf.unstack(indices, 2, axis=1)  # XLA cannot tell that slices of an open size match
    rows = tf.gather(dense, places[column]) * tf.expand_dims(values, 1)
    return tf.cast(sums.by_segment(rows, places[row], int(site.constant(2)[row])), dtype)


def dense_sum(site: Site) -> Any:
    """Adds the values to the dense tensor at their indices."""
    indices, values, _, dense = site.inputs
    return tf.tensor_scatter_nd_add(dense, indices, values)


def elementwise(function: Callable[[Any, Any], Any]) -> Callable[[Site], Any]:
    """Makes the table row of an op on the values and the dense tensor's elements (broadcast) at their indices."""

    def lowered(site: Site) -> Any:
        indices, values, _, dense = site.inputs
        return function(values, tf.gather_nd(tf.broadcast_to(dense, site.constant(2)), indices))

    return lowered


def reduced_sum(site: Site) -> Any:
    """Sums over axes, through the dense tensor."""
    indices, values, _, _ = site.inputs
    axes = [int(axis) for axis in np.atleast_1d(site.constant(3))]
    dense = tf.scatter_nd(indices, values, tf.constant(site.constant(2), indices.dtype))
    return tf.reduce_sum(dense, axes or None, keepdims=site.attr("keep_dims"))


def softmax(site: Site) -> Any:
    """Softmax of the values in each row of the last dimension."""
    indices, values, _ = site.inputs
    shape = site.constant(2)
    count, rows = int(np.prod(shape[:-1])), linear(indices[:, :-1], shape[:-1])
    largest = tf.math.unsorted_segment_max(values, rows, count)
    powers = tf.exp(values - tf.gather(largest, rows))
    return powers / tf.gather(sums.by_segment(powers, rows, count), rows)


def reordered(site: Site) -> Any:
    """Sorts indices and values by the indices."""
    indices, values, _ = site.inputs
    if indices.shape[0] is None:
        raise site.refused("the number of its values is not known when XLA compiles")
    _, order, _ = duplicates.runs(-linear(indices, site.constant(2)))
    return [tf.gather(indices, order), tf.gather(values, order)]


def reshaped(site: Site) -> Any:
    """Indices of the same elements in another shape."""
    indices, _, _ = site.inputs
    before, after = site.constant(1), np.array(site.constant(2))
    if (after < 0).any():
        after[after < 0] = np.prod(before) // max(-np.prod(after), 1)
    places = linear(indices, before)
    parts = [places // int(np.prod(after[axis + 1 :])) % int(size) for axis, size in enumerate(after)]
    return [tf.stack(parts, 1), tf.constant(after, tf.int64)]


def linear(indices: Any, shape: Any) -> Any:
    """Returns the flat indices [n] of indices [n, rank] in a dense tensor of that shape."""
    steps = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return tf.reduce_sum(indices * tf.constant(steps, indices.dtype, [len(shape)]), 1)
