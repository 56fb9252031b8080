"""sequence_loss of tf.contrib.seq2seq (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """Weighted cross entropy of a sequence of logits.

    Args:
        logits: [batch, time, classes].
        targets: int [batch, time].
        weights: float [batch, time].
        average_across_timesteps: whether to divide by the weights' sum over time.
        average_across_batch: whether to divide by the weights' sum over the batch.
        sum_over_timesteps: whether to sum over time, and divide by the number of weights that are not zero.
        sum_over_batch: the same over the batch.
        softmax_loss_function: optional, (labels=, logits=) -> loss.
        name: the name scope.

    Returns:
        A scalar, [time], [batch] or [batch, time], by what is averaged or summed over.

    Raises:
        ValueError: a shape has the wrong rank, or both averaging and summing are requested for one axis.
    """
    for value, rank, what in ((logits, 3, "Logits"), (targets, 2, "Targets"), (weights, 2, "Weights")):
        if len(value.shape) != rank:
            raise ValueError("%s must be a tensor of rank %d, saw shape %s" % (what, rank, value.shape))
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError("average_across_timesteps and sum_over_timesteps cannot be set to True at same time.")
    if average_across_batch and sum_over_batch:
        raise ValueError("average_across_batch and sum_over_batch cannot be set to True at same time.")
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        flat_logits = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        flat_logits.set_shape([None, logits.shape[2]])
        loss = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = loss(labels=tf.reshape(targets, [-1]), logits=flat_logits) * tf.reshape(weights, [-1])
        losses = tf.reshape(losses, tf.shape(logits)[:2])
        if average_across_timesteps or average_across_batch:
            axes = _axes(average_across_timesteps, average_across_batch)
            return tf.div_no_nan(tf.reduce_sum(losses, axes), tf.reduce_sum(weights, axes))
        if sum_over_timesteps or sum_over_batch:
            axes = _axes(sum_over_timesteps, sum_over_batch)
            return tf.div_no_nan(tf.reduce_sum(losses, axes), tf.cast(tf.count_nonzero(weights, axes), losses.dtype))
        return losses


def _axes(over_time, over_batch):
    return [0, 1] if over_time and over_batch else ([0] if over_batch else [1])
