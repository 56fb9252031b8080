"""Linear-chain conditional random fields: tf.contrib.crf (behaviour of TensorFlow 1.15.5; Lafferty et al. 2001).

Shapes: inputs (unary scores) [batch, time, tags], tag_indices int32 [batch, time], sequence_lengths int [batch],
transition_params [tags, tags] from the row's tag to the column's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[tf.Tensor, Any]:
    """The log likelihood of tag sequences.

    Args:
        inputs: [batch, time, tags].
        tag_indices: int32 [batch, time].
        sequence_lengths: int [batch].
        transition_params: [tags, tags]; the variable "transitions" is made when it is None.

    Returns:
        (log likelihood [batch], transition_params).
    """
    inputs = tf.convert_to_tensor(inputs)
    tags = inputs.shape.as_list()[2]
    if transition_params is None:
        transition_params = tf.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """The unnormalized score of tag sequences, [batch]; 0 for an empty one."""
    tag_indices = tf.cast(tag_indices, tf.int32)
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """The score of all tag sequences that a bitmap [batch, time, tags] allows, [batch]."""
    forbidden = tf.fill(tf.shape(inputs), tf.constant(-np.inf, inputs.dtype))
    return crf_log_norm(tf.where(tag_bitmap, inputs, forbidden), sequence_lengths, transition_params)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> tf.Tensor:
    """The sum of the tags' unary scores, [batch]."""
    chosen = tf.gather(inputs, tag_indices, axis=2, batch_dims=2)
    return tf.reduce_sum(chosen * tf.sequence_mask(sequence_lengths, tf.shape(inputs)[1], inputs.dtype), 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """The sum of the transitions' scores, [batch]."""
    steps = tf.gather_nd(transition_params, tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], 2))
    lengths = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    return tf.reduce_sum(steps * tf.sequence_mask(lengths, tf.shape(tag_indices)[1] - 1, steps.dtype), 1)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """The log of the sum over all tag sequences, [batch]; 0 for an empty one."""
    alphas = _forward(inputs, sequence_lengths, transition_params, tf.reduce_logsumexp)
    norm = tf.reduce_logsumexp(alphas, [1])
    return tf.where(tf.cast(sequence_lengths, tf.int32) <= 0, tf.zeros_like(norm), norm)


def _forward(inputs, sequence_lengths, transition_params, reduce):
    """The forward variables [batch, tags] at the end of each sequence; `reduce` sums or maximizes over the last tag."""
    inputs, lengths = tf.convert_to_tensor(inputs), tf.cast(sequence_lengths, tf.int32)

    def step(alphas, now):
        time, unary = now
        after = unary + reduce(tf.expand_dims(alphas, 2) + transition_params, [1])
        return tf.where(tf.broadcast_to(tf.expand_dims(time < lengths, 1), tf.shape(after)), after, alphas)

    def of_one():
        return tf.identity(inputs[:, 0])

    def of_several():
        rest = tf.transpose(inputs[:, 1:], [1, 0, 2])
        return tf.foldl(step, (tf.range(1, tf.shape(inputs)[1]), rest), initializer=inputs[:, 0])

    size = inputs.shape.as_list()[1]
    if size is None:
        return tf.cond(tf.equal(tf.shape(inputs)[1], 1), of_one, of_several)
    return of_one() if size == 1 else of_several()  # a fold over nothing has no gradient


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """The best tag sequence of one example, in numpy.

    Args:
        score: array [time, tags].
        transition_params: array [tags, tags].

    Returns:
        (list of tags, their score).
    """
    best, came_from = score[0], []
    for unary in score[1:]:
        paths = best[:, None] + transition_params
        came_from.append(np.argmax(paths, 0))
        best = unary + np.max(paths, 0)
    tags: list[Any] = [np.argmax(best)]
    for step in reversed(came_from):
        tags.append(step[tags[-1]])
    return tags[::-1], np.max(best)


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The best tag sequences.

    Args:
        potentials: [batch, time, tags].
        transition_params: [tags, tags].
        sequence_length: int [batch].

    Returns:
        (tags int32 [batch, time], 0 past the end; scores [batch]).
    """
    potentials, lengths = tf.convert_to_tensor(potentials), tf.cast(sequence_length, tf.int32)
    shape = tf.shape(potentials)

    def forward(state, now):
        time, unary = now
        paths = tf.expand_dims(state[0], 2) + transition_params
        inside = tf.broadcast_to(tf.expand_dims(time < lengths, 1), tf.shape(unary))
        best = tf.where(inside, unary + tf.reduce_max(paths, [1]), state[0])
        # past the end every tag points to itself
        return best, tf.where(inside, tf.argmax(paths, 1, output_type=tf.int32), same)

    same = tf.broadcast_to(tf.range(shape[2]), [shape[0], shape[2]])
    steps = (tf.range(1, shape[1]), tf.transpose(potentials[:, 1:], [1, 0, 2]))
    bests, came_from = tf.scan(forward, steps, initializer=(potentials[:, 0], same), back_prop=False)
    # with one step the scan is empty
    best = tf.concat([potentials[None, :, 0], bests], 0)[-1]
    last = tf.argmax(best, 1, output_type=tf.int32)
    before = tf.scan(
        lambda tag, step: tf.gather(step, tag, axis=1, batch_dims=1), came_from, initializer=last, reverse=True,
        back_prop=False,
    )  # fmt: skip
    tags = tf.transpose(tf.concat([before, [last]], 0))
    tags.set_shape(potentials.shape[:2])
    tags *= tf.sequence_mask(tf.maximum(lengths, 1), shape[1], tf.int32)
    # an empty sequence is decoded as if it had one step
    return tags, tf.reduce_max(best, 1)


class _Step:
    """One step of the recursions above, as a cell."""

    def __init__(self, transition_params):
        self._transition_params = tf.expand_dims(transition_params, 0)
        self._tags = transition_params.shape.as_list()[0]

    @property
    def state_size(self):
        return self._tags

    @property
    def output_size(self):
        return self._tags


class CrfForwardRnnCell(_Step):
    """Computes the alpha values of a step."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (alphas, alphas)."""
        alphas = inputs + tf.reduce_logsumexp(tf.expand_dims(state, 2) + self._transition_params, [1])
        return alphas, alphas


class CrfDecodeForwardRnnCell(_Step):
    """Computes best scores and back pointers of a step."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (back pointers, best scores)."""
        paths = tf.expand_dims(state, 2) + self._transition_params
        return tf.argmax(paths, 1, output_type=tf.int32), inputs + tf.reduce_max(paths, [1])


class CrfDecodeBackwardRnnCell:
    """Follows back pointers."""

    def __init__(self, num_tags: int) -> None:
        self._tags = num_tags

    @property
    def state_size(self) -> Any:
        return 1

    @property
    def output_size(self) -> Any:
        return 1

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (tags [batch, 1], tags)."""
        tags = tf.gather(inputs, state, axis=1, batch_dims=1)
        return tags, tags
