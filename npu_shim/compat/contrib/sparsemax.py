"""Sparsemax (Martins and Astudillo 2016): tf.contrib.sparsemax (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sparsemax(logits: Any, name: str | None = None) -> tf.Tensor:
    """Projects logits [batch, classes] onto the simplex; most results are 0."""
    with tf.name_scope(name, "sparsemax", [logits]):
        logits = tf.convert_to_tensor(logits)
        z = logits - tf.reduce_mean(logits, 1, keepdims=True)
        classes = tf.shape(z)[1]
        ordered, _ = tf.nn.top_k(z, k=classes)
        total = tf.cumsum(ordered, axis=1)
        k = tf.range(1, tf.cast(classes, z.dtype) + 1, dtype=z.dtype)
        support = tf.reduce_sum(tf.cast(1 + k * ordered > total, tf.int32), 1)
        tau = (tf.gather(total, tf.maximum(support, 1) - 1, axis=1, batch_dims=1) - 1) / tf.cast(support, z.dtype)
        projected = tf.maximum(tf.cast(0, z.dtype), z - tau[:, None])
        # rows with an infinite or undefined logit have no projection
        return tf.where(
            tf.broadcast_to((support < 1)[:, None], tf.shape(z)), tf.fill(tf.shape(z), float("nan")), projected
        )


def sparsemax_loss(logits: Any, sparsemax: Any, labels: Any, name: str | None = None) -> tf.Tensor:
    """The loss whose gradient is sparsemax - labels: [batch] from three [batch, classes]."""
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        z = logits - tf.reduce_mean(logits, 1, keepdims=True)
        kept = tf.where(sparsemax > 0, sparsemax * (z - 0.5 * sparsemax), tf.zeros_like(sparsemax))
        # 0 times an infinite logit is 0 where the label is 0
        wrong = tf.where(tf.equal(labels, 0), tf.zeros_like(labels), labels * (0.5 * labels - z))
        return tf.reduce_sum(kept + wrong, 1)
