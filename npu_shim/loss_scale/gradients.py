"""Scaling a loss and unscaling gradients, always in float32 or wider, and clipping that survives an overflow."""

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.graph_ops import keep_dtype


def scale_loss(loss, scale):
    """Returns loss * scale, in float32 when the loss is narrower (2**32 is infinity in float16)."""
    with keep_dtype(), tf.name_scope("scale_loss"):
        loss = tf.convert_to_tensor(loss)
        wide = tf.float64 if loss.dtype.base_dtype == tf.float64 else tf.float32
        return tf.cast(loss, wide) * tf.cast(scale, wide)


def unscale(grads_and_vars, scale):
    """Returns the pairs with every gradient multiplied by 1 / scale, in float32 or wider, in its own dtype again."""
    with keep_dtype(), tf.name_scope("unscale"):
        down = tf.reciprocal(tf.cast(scale, tf.float32))
        return [(None if g is None else _times(g, down), v) for g, v in grads_and_vars]


def scaled_gradients(loss, variables, scale):
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


def clip_by_global_norm(gradients, clip_norm):
    """Clips unscaled gradients as tf.clip_by_global_norm, but leaves them as they are when their norm is not finite.

    The original turns one infinite value into NaN everywhere, so nothing tells afterwards which gradient overflowed;
    here a step that overflowed is still seen, and skipped, by the optimizer.

    Args:
        gradients: list of Tensor, IndexedSlices or None, as `compute_gradients` returns them, already unscaled.
        clip_norm: float scalar.

    Returns:
        (clipped list, global norm before clipping: scalar).
    """
    with keep_dtype():
        norm = tf.global_norm(gradients)
        # tf.clip_by_global_norm scales by clip_norm / max(norm, clip_norm)
        used = tf.where_v2(tf.is_finite(norm), norm, tf.cast(clip_norm, norm.dtype))
        return tf.clip_by_global_norm(gradients, clip_norm, use_norm=used)[0], norm


def _times(gradient, factor):
    if isinstance(gradient, tf.IndexedSlices):
        values = _times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    dtype = gradient.dtype.base_dtype
    if dtype == tf.float32:
        return gradient * factor
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    return tf.cast(tf.cast(gradient, wide) * tf.cast(factor, wide), dtype)
