"""Parts of decoders by the private names and parameters of TensorFlow 1.15.5, which public scripts import."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq import beam_search, beam_step, losses, training_helpers

_tile_batch = beam_search._tiled
_mask_probs = beam_step._only_end
_unstack_ta = training_helpers._unstacked


def _beam_search_step(
    time, logits, next_cell_state, beam_state, batch_size, beam_width, end_token, length_penalty_weight,
    coverage_penalty_weight,
):  # fmt: skip
    """One step of a beam search: (BeamSearchDecoderOutput, BeamSearchDecoderState)."""
    del time
    probs = get_attention_probs(next_cell_state, coverage_penalty_weight)
    scores, ids, parents, state = beam_step.beam_search_step(
        logits, next_cell_state, beam_state, batch_size, beam_width, end_token, length_penalty_weight,
        coverage_penalty_weight, probs,
    )  # fmt: skip
    return beam_search.BeamSearchDecoderOutput(scores, ids, parents), state


def get_attention_probs(next_cell_state: Any, coverage_penalty_weight: Any) -> Any:
    """Alignments [batch, beam, time] of a cell's state; None where no coverage is asked for."""
    return None if coverage_penalty_weight == 0.0 else beam_search.attention_probs(next_cell_state)


def attention_probs_from_attn_state(attention_state: Any) -> tf.Tensor:
    """Alignments [batch, beam, time] of an AttentionWrapperState, their mean over several mechanisms."""
    return beam_search.attention_probs(attention_state)


def _get_scores(
    log_probs, sequence_lengths, length_penalty_weight, coverage_penalty_weight, finished, accumulated_attention_probs
):
    """What beams are ordered by, [batch, beam, classes]."""
    scores = log_probs / tf.cast(_length_penalty(sequence_lengths, length_penalty_weight), log_probs.dtype)
    if coverage_penalty_weight != 0.0:
        penalty = beam_step._coverage_penalty(accumulated_attention_probs, finished)
        scores += tf.expand_dims(penalty * coverage_penalty_weight, 2)
    return scores


def _length_penalty(sequence_lengths, penalty_factor):
    """((5 + length) / 6) ** factor (Wu et al. 2016); 1.0 for a factor of 0."""
    factor = tf.convert_to_tensor(penalty_factor, name="penalty_factor")
    factor.shape.assert_has_rank(0)
    if tf.get_static_value(factor) == 0:
        return 1.0
    return tf.pow((5.0 + tf.cast(sequence_lengths, tf.float32)) / 6.0, factor)


def _tensor_gather_helper(gather_indices, gather_from, batch_size, range_size, gather_shape, name=None):
    """Rows of each batch entry by indices [batch, beam]; `gather_shape` has the sizes that are kept behind them."""
    with tf.name_scope(name, "tensor_gather_helper"):
        first = tf.expand_dims(tf.range(batch_size) * range_size, 1)
        rows = tf.gather(tf.reshape(gather_from, gather_shape), tf.reshape(gather_indices + first, [-1]))
        output = tf.reshape(rows, tf.shape(gather_from)[: 1 + len(gather_shape)], name="output")
        static = tf.get_static_value(tf.convert_to_tensor(batch_size))
        output.set_shape(tf.TensorShape([static]).concatenate(gather_from.shape[1 : 1 + len(gather_shape)]))
        return output


def _maybe_tensor_gather_helper(gather_indices, gather_from, batch_size, range_size, gather_shape):
    """As `_tensor_gather_helper`; TensorArrays, and what has too few dimensions, stay."""
    if isinstance(gather_from, tf.TensorArray):
        return gather_from
    if gather_from.shape.ndims is None:
        raise ValueError("Expected tensor (%s) to have known rank, but ndims == None." % gather_from)
    if gather_from.shape.ndims < len(gather_shape):
        return gather_from
    return _tensor_gather_helper(gather_indices, gather_from, batch_size, range_size, gather_shape)


def bernoulli_sample(
    probs: Any = None, logits: Any = None, dtype: Any = tf.int32, sample_shape: Any = (), seed: Any = None
) -> tf.Tensor:
    """1 with the given probabilities, else 0: [*sample_shape, *shape of the probabilities]."""
    probs = tf.sigmoid(logits) if probs is None else tf.convert_to_tensor(probs)
    shape = tf.concat([tf.reshape(tf.cast(sample_shape, tf.int32), [-1]), tf.shape(probs)], 0)
    return tf.cast(tf.random_uniform(shape, seed=seed, dtype=probs.dtype) < probs, dtype)


def categorical_sample(logits: Any, dtype: Any = tf.int32, sample_shape: Any = (), seed: Any = None) -> tf.Tensor:
    """Classes by logits [..., classes]: [*sample_shape, ...]."""
    logits = tf.convert_to_tensor(logits, name="logits")
    outer, shape = tf.shape(logits)[:-1], tf.reshape(tf.cast(sample_shape, tf.int32), [-1])
    flat = tf.reshape(logits, [-1, tf.shape(logits)[-1]])
    drawn = tf.transpose(tf.multinomial(flat, tf.reduce_prod(shape), seed=seed))
    sample = tf.cast(tf.reshape(drawn, tf.concat([shape, outer], 0)), dtype)
    known = tf.get_static_value(shape)
    sample.set_shape(tf.TensorShape(None if known is None else list(known)).concatenate(logits.shape[:-1]))
    return sample


class SequenceLoss(tf.keras.losses.Loss):
    """`sequence_loss` as a loss of Keras: over all entries, summed over time and batch unless it says otherwise.

    Args:
        average_across_timesteps: bool.
        average_across_batch: bool.
        sum_over_timesteps: bool.
        sum_over_batch: bool.
        softmax_loss_function: as of `sequence_loss`.
        name: of the loss.
    """

    def __init__(
        self, average_across_timesteps: bool = False, average_across_batch: bool = False,
        sum_over_timesteps: bool = True, sum_over_batch: bool = True, softmax_loss_function: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        self.average_across_timesteps, self.average_across_batch = average_across_timesteps, average_across_batch
        self.sum_over_timesteps, self.sum_over_batch = sum_over_timesteps, sum_over_batch
        self.softmax_loss_function = softmax_loss_function

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        """The loss of targets [batch, time] and logits [batch, time, classes], weighted by [batch, time]."""
        return losses.sequence_loss(
            y_pred, y_true, sample_weight, self.average_across_timesteps, self.average_across_batch,
            self.sum_over_timesteps, self.sum_over_batch, self.softmax_loss_function, self.name,
        )  # fmt: skip

    def call(self, y_true: Any, y_pred: Any) -> None:
        """Not used: `__call__` reduces by itself."""
