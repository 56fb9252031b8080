"""Sparsemax (Martins and Astudillo 2016): tf.contrib.sparsemax (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sparsemax(logits: Any, name: str | None = None) -> tf.Tensor:
    """Projects logits [batch, classes] onto the simplex; most results are 0.

    A row with +inf or nan, or with nothing but -inf, has no projection: its results are nan.
    """
    with tf.name_scope(name, "sparsemax", [logits]):
        z = tf.convert_to_tensor(logits, name="logits")
        classes = tf.shape(z)[1]
        ordered, _ = tf.nn.top_k(z, k=classes)
        total = tf.cumsum(ordered, axis=1)
        k = tf.range(1, tf.cast(classes, z.dtype) + 1, dtype=z.dtype)
        support = tf.reduce_sum(tf.cast(1 + k * ordered > total, tf.int32), 1)
        tau = (tf.gather(total, tf.maximum(support, 1) - 1, axis=1, batch_dims=1) - 1) / tf.cast(support, z.dtype)
        projected = tf.maximum(tf.cast(0, z.dtype), z - tau[:, None])
        none = (support < 1) | tf.is_nan(total[:, -1])
        return tf.where(
            tf.broadcast_to(none[:, None], tf.shape(z)), tf.fill(tf.shape(z), tf.cast(float("nan"), z.dtype)), projected
        )


def sparsemax_loss(logits: Any, sparsemax: Any, labels: Any, name: str | None = None) -> tf.Tensor:
    """The loss whose gradient is sparsemax - labels: [batch] from three [batch, classes]."""
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        z = tf.convert_to_tensor(logits, name="logits")
        p = tf.convert_to_tensor(sparsemax, name="sparsemax")
        labels = tf.convert_to_tensor(labels, name="labels")
        # 0 times an infinite logit is 0, for the sum over the support and for labels that are 0
        kept = tf.where((p > 0) | tf.is_nan(p), p * (z - 0.5 * p), tf.zeros_like(p))
        wrong = labels * (0.5 * labels - z)
        wrong = tf.where(tf.equal(labels, 0) & tf.is_inf(z), tf.zeros_like(wrong), wrong)
        return tf.reduce_sum(kept + wrong, 1)
