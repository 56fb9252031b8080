"""The arithmetic of attention: scores, masks, monotonic alignments (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def _bahdanau_score(processed_query, keys, attention_v, attention_g=None, attention_b=None):
    """Score = v . tanh(keys + query [+ b]), with v of length g when normalized."""
    total = keys + tf.expand_dims(processed_query, 1)
    if attention_g is None:
        return tf.reduce_sum(attention_v * tf.tanh(total), [2])
    unit = attention_g * attention_v * tf.rsqrt(tf.reduce_sum(tf.square(attention_v)))
    return tf.reduce_sum(unit * tf.tanh(total + attention_b), [2])


def _luong_score(query, keys, scale):
    """Score = query . keys [* scale]; both have one depth, or ValueError."""
    depths = query.shape[-1], keys.shape[-1]
    if depths[0] != depths[1]:
        raise ValueError(
            "Incompatible or unknown inner dimensions: the query has %s units, the keys have %s; give num_units=%s"
            % (depths[0], depths[1], depths[0])
        )
    score = tf.squeeze(tf.matmul(tf.expand_dims(query, 1), keys, transpose_b=True), [1])
    return score if scale is None else scale * score


def _monotonic_probability_fn(score, previous_alignments, sigmoid_noise, mode, seed=None):
    """Alignments from scores: with noise, through a sigmoid (or a threshold when `mode` is "hard")."""
    if sigmoid_noise > 0:
        score += sigmoid_noise * tf.random_normal(tf.shape(score), dtype=score.dtype, seed=seed)
    chosen = tf.cast(score > 0, score.dtype) if mode == "hard" else tf.sigmoid(score)
    return monotonic_attention(chosen, previous_alignments, mode)


def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> tf.Tensor:
    """The expected monotonic alignment, when attention stops at a step with a given probability.

    Args:
        p_choose_i: [batch, time], the probability of stopping at each step.
        previous_attention: [batch, time], the last alignment.
        mode: "recursive" (exact, slow), "parallel" (a division by a cumulative product) or "hard" (`p_choose_i` is 0
            or 1).

    Returns:
        [batch, time].

    Raises:
        ValueError: another `mode`.
    """
    p = tf.convert_to_tensor(p_choose_i, name="p_choose_i")
    previous = tf.convert_to_tensor(previous_attention, name="previous_attention")
    if mode == "recursive":
        batch = tf.shape(p)[0]
        not_before = tf.concat([tf.ones([batch, 1], p.dtype), 1 - p[:, :-1]], 1)
        reached = tf.scan(
            lambda x, step: tf.reshape(step[0] * x + step[1], [batch]),
            [tf.transpose(not_before), tf.transpose(previous)], tf.zeros([batch], p.dtype),
        )  # fmt: skip
        attention = p * tf.transpose(reached)
    elif mode == "parallel":
        passed = safe_cumprod(1 - p, axis=1, exclusive=True)
        attention = p * passed * tf.cumsum(previous / tf.clip_by_value(passed, 1e-10, 1.0), axis=1)
    elif mode == "hard":
        p *= tf.cumsum(previous, axis=1)
        attention = p * tf.cumprod(1 - p, axis=1, exclusive=True)
    else:
        raise ValueError("mode must be 'recursive', 'parallel', or 'hard'.")
    return attention


def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
    """The cumulative product of values in [0, 1] as exp(cumsum(log(x))); arguments are those of tf.cumsum."""
    x = tf.convert_to_tensor(x, name="x")
    tiny = np.finfo(x.dtype.as_numpy_dtype).tiny
    return tf.exp(tf.cumsum(tf.log(tf.clip_by_value(x, tiny, 1)), *args, **kwargs))


def hardmax(logits: Any, name: str | None = None) -> tf.Tensor:
    """1 at the largest value along the last axis, 0 elsewhere."""
    with tf.name_scope(name, "Hardmax", [logits]):
        logits = tf.convert_to_tensor(logits, name="logits")
        return tf.one_hot(tf.argmax(logits, -1), _dim(logits, -1), dtype=logits.dtype)


def _maybe_mask_score(score, memory_sequence_length=None, memory_mask=None, score_mask_value=None):
    """The score with `score_mask_value` past the end of each memory."""
    if memory_sequence_length is None and memory_mask is None:
        return score
    if memory_mask is None:
        memory_mask = tf.sequence_mask(memory_sequence_length, maxlen=tf.shape(score)[1])
    return tf.where(memory_mask, score, score_mask_value * tf.ones_like(score))


def _prepare_memory(memory, memory_sequence_length=None, memory_mask=None, check_inner_dims_defined=True):
    """The memory as tensors, zero past the end of each sequence."""
    memory = tf.nest.map_structure(lambda m: tf.convert_to_tensor(m, name="memory"), memory)
    for part in tf.nest.flatten(memory) if check_inner_dims_defined else ():
        if not part.shape[2:].is_fully_defined():
            raise ValueError(
                "Expected memory %s to have fully defined inner dims, but saw shape: %s" % (part.name, part.shape)
            )
    if memory_sequence_length is None and memory_mask is None:
        return memory

    def masked(part):
        mask = memory_mask
        if mask is None:
            mask = tf.sequence_mask(memory_sequence_length, maxlen=tf.shape(part)[1])
        for _ in range(part.shape.ndims - 2):
            mask = tf.expand_dims(mask, -1)
        return part * tf.cast(mask, part.dtype)

    return tf.nest.map_structure(masked, memory)


def _dim(x, axis):
    static = tf.TensorShape(x.shape).as_list()[axis]
    return tf.shape(x)[axis] if static is None else static


def _shaped(x, batch_size, size):
    static = [tf.get_static_value(tf.convert_to_tensor(n)) for n in (batch_size, size)]
    x.set_shape(static)
    return x
