"""Whether all gradients of a step are finite, and whether all workers say so."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.loss_scale.steps import dead
from npu_shim.options.ops.scopes import EQUAL_SHAPES, QUICK_TEST, attributes
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype


def magnitudes(gradients: Sequence[Any]) -> tf.Tensor:
    """Returns one number per gradient, which is not finite if any of the gradient's values is not.

    It is half the sum of squares, one reduction per tensor; it may be infinite for finite values beyond about 1e19.

    Args:
        gradients: list of Tensor or IndexedSlices, float or complex; of the latter the values are looked at.

    Returns:
        float32 tensor of shape [len(gradients)].
    """
    with keep_dtype(), tf.name_scope("magnitudes"):
        return tf.stack([tf.cast(tf.nn.l2_loss(_wide(value)), tf.float32) for value in _values(gradients)])


def all_finite(gradients: Sequence[Any], known: tf.Tensor | None = None) -> tf.Tensor:
    """Returns a bool scalar tensor: every value of every gradient is finite.

    Args:
        gradients: list of Tensor or IndexedSlices, float or complex; of the latter the values are looked at.
        known: `magnitudes(gradients)` if already computed.
    """
    if not tf.executing_eagerly():
        dead.tell([g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients])
    with keep_dtype(), tf.name_scope("all_finite"):
        known = magnitudes(gradients) if known is None else known
        total = tf.reduce_sum(known)
        with attributes(**{QUICK_TEST: True}):
            quick = tf.is_finite(total)
        # a sum of squares overflows before its terms do: look at each value when the sum is not finite
        with attributes(**{EQUAL_SHAPES: True}):
            return tf.cond(quick, lambda: tf.identity(quick), lambda: _every_value_finite(gradients))


def agreed(finite: tf.Tensor) -> tf.Tensor:
    """Returns whether the step is finite on every worker of the hccl group: bool scalar tensor."""
    if ranks.world_size() == 1:
        return finite
    from npu_shim.distributed.collectives.hccl import allreduce

    return tf.equal(allreduce(tf.cast(tf.logical_not(finite), tf.float32), "sum"), 0.0)


def _every_value_finite(gradients):
    with keep_dtype():
        return tf.reduce_all(tf.stack([tf.reduce_all(tf.is_finite(value)) for value in _values(gradients)]))


def _values(gradients):
    return [_floating(g.values if isinstance(g, tf.IndexedSlices) else g) for g in gradients]


def _floating(value):
    """Returns a tensor that is finite where a gradient is; of a complex one, its two parts."""
    if value.dtype.is_complex:
        return tf.stack([tf.real(value), tf.imag(value)])
    return value if value.dtype.is_floating else tf.cast(value, tf.float32)


def _wide(value):
    # 256 squared is infinity in float16
    return value if value.dtype.base_dtype in (tf.float32, tf.float64) else tf.cast(value, tf.float32)
