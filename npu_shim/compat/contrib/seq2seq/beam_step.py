"""One step of beam search: scores of all continuations, and the best of them."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf

_FIELDS = ["cell_state", "log_probs", "finished", "lengths", "accumulated_attention_probs"]


class BeamSearchDecoderState(collections.namedtuple("BeamSearchDecoderState", _FIELDS)):
    """The state of a beam search.

    Attributes:
        cell_state: (nested) tensors [batch, beam, ...].
        log_probs: [batch, beam], of the hypotheses so far.
        finished: bool [batch, beam].
        lengths: int64 [batch, beam].
        accumulated_attention_probs: [batch, beam, memory time] with a coverage penalty, else ().
    """


def beam_search_step(
    logits: Any,
    next_cell_state: Any,
    state: Any,
    batch_size: Any,
    beam_width: int,
    end_token: Any,
    length_penalty_weight: Any,
    coverage_penalty_weight: Any,
    attention_probs: Any,
) -> tuple[Any, Any, Any, BeamSearchDecoderState]:  # fmt: skip
    """Chooses the next beams.

    Args:
        logits: [batch, beam, classes].
        next_cell_state: (nested) tensors [batch, beam, ...].
        state: a BeamSearchDecoderState.
        batch_size: int32 scalar.
        beam_width: int.
        end_token: int32 scalar.
        length_penalty_weight: float.
        coverage_penalty_weight: float.
        attention_probs: [batch, beam, memory time], or None without a coverage penalty.

    Returns:
        (scores, ids, parent beams, next state); the first three are [batch, beam].
    """
    classes = logits.shape.as_list()[-1] or tf.shape(logits)[-1]
    total = tf.expand_dims(state.log_probs, 2) + _only_end(tf.nn.log_softmax(logits), end_token, state.finished)
    alive = tf.logical_not(state.finished)
    # a hypothesis that continues grows by one, unless it continues with the end token
    grows = tf.one_hot(end_token, classes, on_value=0, off_value=1, dtype=tf.int64)
    lengths = tf.expand_dims(state.lengths, 2) + grows * tf.expand_dims(tf.cast(alive, tf.int64), 2)
    scores = total
    if _wanted(length_penalty_weight):
        scores = total / tf.cast(((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** length_penalty_weight, total.dtype)
    covered = ()
    if attention_probs is not None:
        covered = state.accumulated_attention_probs + attention_probs * tf.expand_dims(tf.cast(alive, tf.float32), 2)
        scores += tf.expand_dims(_coverage_penalty(covered, state.finished) * coverage_penalty_weight, 2)
    best, flat = tf.nn.top_k(tf.reshape(scores, [batch_size, -1]), k=beam_width)
    ids, parents = tf.cast(flat % classes, tf.int32), tf.cast(flat // classes, tf.int32)

    def of_parents(t):
        if isinstance(t, tf.TensorArray) or t.shape.ndims < 2:
            return t
        gathered = tf.gather(t, parents, axis=1, batch_dims=1)
        gathered.set_shape(t.shape)
        return gathered

    finished = of_parents(state.finished)
    chosen = tf.gather(tf.reshape(total, [batch_size, -1]), flat, axis=1, batch_dims=1)
    chosen.set_shape(state.log_probs.shape)
    for t in (best, ids, parents):
        t.set_shape(state.log_probs.shape)
    next_state = BeamSearchDecoderState(
        cell_state=tf.nest.map_structure(of_parents, next_cell_state),
        log_probs=chosen,
        finished=tf.logical_or(finished, tf.equal(ids, end_token)),
        lengths=of_parents(state.lengths) + tf.cast(tf.logical_not(finished), tf.int64),
        accumulated_attention_probs=of_parents(covered) if attention_probs is not None else (),
    )
    return best, ids, parents, next_state


def _wanted(weight):
    static = tf.get_static_value(tf.convert_to_tensor(weight))
    return static is None or static != 0


def _only_end(log_probs, end_token, finished):
    """Log probabilities [batch, beam, classes], where a finished beam can only continue with the end token."""
    end = tf.one_hot(
        end_token, tf.shape(log_probs)[2], dtype=log_probs.dtype, on_value=0.0, off_value=log_probs.dtype.min
    )
    shape = tf.shape(log_probs)
    return tf.where(tf.broadcast_to(tf.expand_dims(finished, 2), shape), tf.broadcast_to(end, shape), log_probs)


def _coverage_penalty(covered, finished):
    """Sum over the memory of log(min(attention, 1)), for finished beams; steps never attended to do not count."""
    covered = tf.where(tf.equal(covered, 0.0), tf.ones_like(covered), covered)
    return tf.reduce_sum(tf.log(tf.minimum(covered, 1.0)), 2) * tf.cast(finished, tf.float32)
