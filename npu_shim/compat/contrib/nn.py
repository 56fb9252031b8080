"""Functions of tf.contrib.nn (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def alpha_dropout(
    x: Any, keep_prob: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Dropout for selu (Klambauer et al. 2017): it keeps mean and variance.

    Raises:
        ValueError: keep_prob is no scalar of x's dtype, or is not in (0, 1].
    """
    with tf.name_scope(name, "alpha_dropout", [x]):
        x = tf.convert_to_tensor(x)
        if isinstance(keep_prob, float) and not 0 < keep_prob <= 1:
            raise ValueError("keep_prob must be a scalar tensor or a float in the range (0, 1], got %g" % keep_prob)
        keep_prob = tf.convert_to_tensor(keep_prob, x.dtype, name="keep_prob")
        keep_prob.shape.assert_is_compatible_with([])
        if tf.get_static_value(keep_prob) == 1:
            return x
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


def rank_sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_resampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    resampling_temperature: Any,
    remove_accidental_hits: bool,
    partition_strategy: str,
    name: str | None = None,
) -> tf.Tensor:
    """Sampled softmax over those of the sampled classes that rank highest (Bai et al. 2017, "TAPAS").

    Args:
        weights: [num_classes, dim], a list of its parts, or a partitioned variable.
        biases: [num_classes], or its parts.
        labels: int64 [batch, num_true].
        inputs: float [batch, dim].
        num_sampled: int, classes that are sampled.
        num_resampled: int, how many of these are kept, the greatest by LogSumExp(logits / temperature) over the batch.
        num_classes: int.
        num_true: int, labels of an example.
        sampled_values: what a tf.nn.*_candidate_sampler returns; None for learned_unigram_candidate_sampler.
        resampling_temperature: scalar.
        remove_accidental_hits: bool, whether sampled classes that are labels are left out.
        partition_strategy: "mod" or "div", how parts were made.
        name: name scope, "rank_sampled_softmax_loss" by default.

    Returns:
        [batch], the losses.

    Raises:
        ValueError: num_resampled is not below num_sampled, or the strategy is another.
    """
    if num_sampled > num_classes:
        raise ValueError("num_sampled (%d) cannot be greater than num_classes (%d)" % (num_sampled, num_classes))
    if num_sampled <= num_resampled:
        raise ValueError("num_resampled (%d) must be less than num_sampled (%d)" % (num_resampled, num_sampled))
    if partition_strategy not in ("div", "mod"):
        raise ValueError("unsupported partition_strategy (%s)" % partition_strategy)
    with tf.name_scope(name, "rank_sampled_softmax_loss", [labels, inputs]):
        if sampled_values is None:
            sampled_values = tf.nn.learned_unigram_candidate_sampler(labels, num_true, num_sampled, True, num_classes)
        candidates, true_count, counts = map(tf.convert_to_tensor, sampled_values)
        embeddings = tf.nn.embedding_lookup(weights, candidates, partition_strategy)
        offsets = tf.nn.embedding_lookup(biases, candidates, partition_strategy)
        logits = tf.matmul(embeddings, inputs / resampling_temperature, transpose_b=True)
        ranks = tf.reduce_logsumexp(logits, 1) + offsets / resampling_temperature
        kept = tf.nn.top_k(ranks, num_resampled, sorted=False).indices
        return tf.nn.sampled_softmax_loss(
            weights, biases, labels, inputs, num_resampled, num_classes, num_true,
            (tf.gather(candidates, kept), true_count, tf.gather(counts, kept)), remove_accidental_hits,
            partition_strategy,
        )  # fmt: skip


def sampled_sparse_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_sparse_softmax_loss",
) -> tf.Tensor:
    """tf.nn.sampled_softmax_loss with one label for each example: labels int64 [batch, 1], losses [batch]."""
    return tf.nn.sampled_softmax_loss(
        weights, biases, labels, inputs, num_sampled, num_classes, 1, sampled_values, remove_accidental_hits,
        partition_strategy, name,
    )  # fmt: skip


def fwd_gradients(ys: Any, xs: Any, grad_xs: Any = None, assert_unused: bool = False) -> list[tf.Tensor]:
    """Forward-mode derivatives of `ys` in the direction `grad_xs` of `xs`: the gradients' gradients (J. Townsend 2017).

    Args:
        ys: list of tensors.
        xs: list of tensors.
        grad_xs: list of tensors like xs; ones by default.
        assert_unused: ignored; nothing of the intermediate gradients is computed.

    Returns:
        list of tensors like ys.
    """
    zeros = [tf.zeros_like(y) for y in ys]
    backward: list[tf.Tensor] = tf.gradients(ys, xs, grad_ys=zeros)
    return list(tf.gradients(backward, zeros, grad_ys=grad_xs))
