"""Ops on a variable's handle whose kernels XLA has only for values: read, compute, write."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.site import Site


def gather_nd(site: Site) -> Any:
    """Gathers the elements or slices at indices [..., depth]."""
    variable, indices = site.inputs
    return tf.raw_ops.GatherNd(params=variable.read(), indices=indices)


def scatter_nd_max(site: Site) -> Any:
    """Writes the elementwise maximum at the indices."""
    variable, indices, updates = site.inputs
    return [variable.write(tf.raw_ops.TensorScatterMax(tensor=variable.read(), indices=indices, updates=updates))]


def scatter_nd_min(site: Site) -> Any:
    """Writes the elementwise minimum at the indices."""
    variable, indices, updates = site.inputs
    return [variable.write(tf.raw_ops.TensorScatterMin(tensor=variable.read(), indices=indices, updates=updates))]


def count_up_to(site: Site) -> Any:
    """Returns the count and increments it; at the limit it stays, where TensorFlow raises OutOfRange."""
    (variable,) = site.inputs
    before = variable.read()
    with tf.control_dependencies([variable.write(tf.minimum(before + 1, tf.cast(site.attr("limit"), before.dtype)))]):
        return tf.identity(before)
