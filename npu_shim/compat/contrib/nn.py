"""Functions of tf.contrib.nn (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def alpha_dropout(
    x: Any, keep_prob: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Dropout for selu (Klambauer et al. 2017): it keeps mean and variance."""
    with tf.name_scope(name, "alpha_dropout", [x]):
        x = tf.convert_to_tensor(x)
        if isinstance(keep_prob, float) and not 0 < keep_prob <= 1:
            raise ValueError("keep_prob must be a scalar tensor or a float in the range (0, 1], got %g" % keep_prob)
        if tf.get_static_value(tf.convert_to_tensor(keep_prob)) == 1:
            return x
        keep_prob = tf.cast(keep_prob, x.dtype)
        alpha = -1.7580993408473766
        shape = tf.shape(x) if noise_shape is None else noise_shape
        kept = tf.cast(tf.floor(keep_prob + tf.random_uniform(shape, dtype=x.dtype, seed=seed)), x.dtype)
        a = tf.rsqrt(keep_prob + tf.square(alpha) * keep_prob * (1 - keep_prob))
        dropped = a * (x * kept + alpha * (1 - kept)) - a * alpha * (1 - keep_prob)
        dropped.set_shape(x.shape)
        return dropped


def scaled_softplus(x: Any, alpha: Any, clip: Any = None, name: str | None = None) -> tf.Tensor:
    """Alpha * softplus(x / alpha), at most `clip` if that is given."""
    with tf.name_scope(name, "scaled_softplus", [x, alpha]):
        y = alpha * tf.nn.softplus(x / alpha)
        return y if clip is None else tf.minimum(y, clip)


def deprecated_flipped_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, dim: int = -1, name: str | None = None
) -> tf.Tensor:
    """tf.nn.softmax_cross_entropy_with_logits with the logits first."""
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


def deprecated_flipped_sparse_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, name: str | None = None
) -> tf.Tensor:
    """tf.nn.sparse_softmax_cross_entropy_with_logits with the logits first."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


def deprecated_flipped_sigmoid_cross_entropy_with_logits(
    logits: Any, targets: Any, name: str | None = None
) -> tf.Tensor:
    """tf.nn.sigmoid_cross_entropy_with_logits with the logits first."""
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)
