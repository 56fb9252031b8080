"""Scaling a loss and unscaling gradients, always in float32 or wider, and clipping that survives an overflow."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype

# its reciprocal is a normal float32; that of 2**127 is flushed to zero, and all gradients with it
LARGEST = 2.0**126
NARROW = (tf.float16, tf.bfloat16)


def as_factor(scale: Any) -> tf.Tensor:
    """Returns a scale as a step multiplies by it: at most LARGEST, where a schedule may have 2**127.

    It is a copy. Another thread's step may move the scale before the gradients are divided by it, and two reads of a
    variable, or one Identity of a reference variable, would show that.
    """
    with keep_dtype():
        scale = tf.convert_to_tensor(scale)
        fixed = tf.get_static_value(scale)
        if fixed is not None and fixed <= LARGEST:
            return scale
        return tf.minimum(scale, LARGEST, name="loss_scale_factor")


def scale_loss(loss: Any, scale: Any) -> Any:
    """Returns loss * scale, in float32 when the loss is narrower (2**32 is infinity in float16).

    Args:
        loss: float tensor of any shape, or a list of such; tf.gradients adds all their elements up.
        scale: float scalar.
    """
    if isinstance(loss, (list, tuple)) and len({str(tf.convert_to_tensor(part).shape) for part in loss}) > 1:
        return tf.add_n([tf.reduce_sum(scale_loss(part, scale)) for part in loss])
    with keep_dtype(), tf.name_scope("scale_loss"):
        loss = tf.convert_to_tensor(loss)
        wide = tf.float64 if loss.dtype.base_dtype == tf.float64 else tf.float32
        return tf.cast(loss, wide) * tf.cast(scale, wide)


def widened(grad_loss: Any) -> Any:
    """Returns the gradient of a loss as that of its `scale_loss`: 16 bits in float32, all else as it is.

    Args:
        grad_loss: Tensor, IndexedSlices, array, number or None.
    """
    dtype = getattr(grad_loss, "dtype", None)
    if dtype is None or tf.as_dtype(dtype).base_dtype not in NARROW:
        return grad_loss
    with keep_dtype(), tf.name_scope("scale_loss"):
        return _cast(grad_loss, tf.float32)


def weighted(losses: Any, starts: Sequence[Any]) -> tf.Tensor:
    """Returns the scalar whose gradients are those of several losses with an incoming gradient each.

    `scale_loss` makes one tensor of a list, which cannot be given a list of gradients.

    Args:
        losses: float tensor, or a list of such, of any shapes.
        starts: list of their incoming gradients: float tensors of the losses' shapes, or None for ones.

    Returns:
        float32 scalar, float64 where a loss is.

    Raises:
        ValueError: there is not one gradient for each loss, as from tf.gradients.
    """
    losses = list(losses) if isinstance(losses, (list, tuple)) else [losses]
    if len(losses) != len(starts):
        raise ValueError("npu_shim: grad_loss has %d gradients for %d losses" % (len(starts), len(losses)))
    with keep_dtype(), tf.name_scope("scale_loss"):
        losses = [tf.convert_to_tensor(loss) for loss in losses]
        wide = tf.float64 if any(loss.dtype.base_dtype == tf.float64 for loss in losses) else tf.float32
        parts = [
            tf.cast(loss, wide) if start is None else tf.cast(loss, wide) * tf.stop_gradient(tf.cast(start, wide))
            for loss, start in zip(losses, starts)
        ]
        return tf.add_n([tf.reduce_sum(part) for part in parts])


def unscale(grads_and_vars: Iterable[tuple[Any, Any]], scale: Any) -> list[tuple[Any, Any]]:
    """Returns the pairs with every gradient multiplied by 1 / scale in float32 or wider, cast back to its dtype."""
    with keep_dtype(), tf.name_scope("unscale"):
        down = tf.reciprocal(tf.cast(scale, tf.float32))
        return [(None if g is None else times(g, down), v) for g, v in grads_and_vars]


def times(gradient: Any, factor: Any) -> Any:
    """Returns a gradient multiplied by a scalar in float32 or wider, cast back to its dtype; IndexedSlices stay sparse.

    Args:
        gradient: Tensor or IndexedSlices of any float or complex dtype.
        factor: float32 scalar tensor.
    """
    if isinstance(gradient, tf.IndexedSlices):
        values = times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    dtype = gradient.dtype.base_dtype
    if dtype == tf.float32:
        return gradient * factor
    if dtype.is_complex:
        return gradient * tf.cast(factor, dtype)
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    return tf.cast(tf.cast(gradient, wide) * tf.cast(factor, wide), dtype)


def scaled_gradients(loss: Any, variables: Sequence[Any], scale: Any) -> list[Any]:
    """Returns the gradients of `loss`, computed through `loss * scale` and divided by it again.

    For training steps written by hand and for optimizers that know no loss scale: scale the loss, differentiate,
    divide, then apply. Nothing is skipped; test with `overflow.all_finite` or use LossScaleOptimizer for that.

    Args:
        loss: float tensor.
        variables: list of variables or tensors.
        scale: float scalar, tensor or number.

    Returns:
        list as of tf.gradients: Tensor, IndexedSlices or None for each variable.
    """
    pairs = zip(tf.gradients(scale_loss(loss, scale), variables), variables)
    return [gradient for gradient, _ in unscale(pairs, scale)]


def clip_by_global_norm(gradients: Sequence[Any], clip_norm: Any) -> tuple[list[Any], tf.Tensor]:
    """Clips unscaled gradients as tf.clip_by_global_norm, but leaves them unchanged if one is not finite.

    The original turns one infinite value into NaN everywhere, which hides the gradient that overflowed. Here the
    optimizer still detects and skips a step that overflowed. The norm is computed in float32 or wider: for finite
    float16 gradients it is finite, however many there are.

    Args:
        gradients: list of Tensor, IndexedSlices or None, as `compute_gradients` returns them, already unscaled.
        clip_norm: float scalar.

    Returns:
        (clipped list in the gradients' dtypes, global norm before clipping: float32 or float64 scalar).
    """
    with keep_dtype(), tf.name_scope("clip_by_global_norm"):
        wide = _widen(gradients)
        norm = _global_norm(wide)
        clip_norm = tf.cast(clip_norm, norm.dtype)
        # tf.clip_by_global_norm scales by clip_norm / max(norm, clip_norm)
        used = tf.where_v2(tf.is_finite(norm), norm, clip_norm)
        clipped = tf.clip_by_global_norm(wide, clip_norm, use_norm=used)[0]
        return [None if g is None else _cast(c, g.dtype.base_dtype) for c, g in zip(clipped, gradients)], norm


def _widen(gradients):
    dtypes = {g.dtype.base_dtype for g in gradients if g is not None}
    wide = tf.float64 if tf.float64 in dtypes else tf.float32
    return [None if g is None else _cast(g, wide) for g in gradients]


def _global_norm(gradients):
    """Returns tf.global_norm, which overflows in its sum of squares: where it is not finite, of scaled gradients."""
    norm = tf.global_norm(gradients)
    given = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients if g is not None]
    if not given:
        return norm

    def scaled():
        with keep_dtype():
            largest = tf.reduce_max(tf.concat([tf.abs(tf.reshape(g, [-1])) for g in given], 0))
            return tf.where_v2(tf.is_finite(largest), largest * tf.global_norm([g / largest for g in given]), norm)

    return tf.cond(tf.is_finite(norm), lambda: tf.identity(norm), scaled)


def _cast(gradient, dtype):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(tf.cast(gradient.values, dtype), gradient.indices, gradient.dense_shape)
    return tf.cast(gradient, dtype)
