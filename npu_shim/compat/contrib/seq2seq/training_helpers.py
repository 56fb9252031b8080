"""The helpers of tf.contrib.seq2seq that read given inputs, some of them now and then samples (as in 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.decoders import _transpose_batch_time
from npu_shim.compat.contrib.seq2seq.helpers import _categorical, _embedding_fn, _Sampling


class TrainingHelper(_Sampling):
    """Reads the given inputs step by step (teacher forcing).

    Args:
        inputs: (nested) tensors [batch, time, ...], or [time, batch, ...] with `time_major`.
        sequence_length: int32 [batch].
        time_major: bool.
        name: unused.

    Raises:
        ValueError: `sequence_length` is not a vector.
    """

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        self._inputs = inputs
        if not time_major:
            inputs = tf.nest.map_structure(_transpose_batch_time, inputs)
        self._input_tas = tf.nest.map_structure(_unstacked, inputs)
        self._sequence_length = tf.convert_to_tensor(sequence_length, name="sequence_length")
        if self._sequence_length.shape.ndims != 1:
            raise ValueError(
                "Expected sequence_length to be a vector, but received shape: %s" % self._sequence_length.shape
            )
        self._zero_inputs = tf.nest.map_structure(lambda x: tf.zeros_like(x[0, :]), inputs)
        self._start_inputs = self._zero_inputs
        self._batch_size = tf.shape(self._sequence_length)[0]

    @property
    def inputs(self) -> Any:
        """The inputs as they were given."""
        return self._inputs

    @property
    def sequence_length(self) -> Any:
        """int32 [batch]."""
        return self._sequence_length

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns (which sequences are empty, the first inputs)."""
        finished = tf.equal(0, self._sequence_length)
        return finished, self._read(0, tf.reduce_all(finished))

    def sample(self, time: Any, outputs: Any, name: str | None = None, **unused: Any) -> Any:
        """Returns the arg max of the outputs, int32 [batch]."""
        return tf.cast(tf.argmax(outputs, axis=-1), tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, name: str | None = None, **unused: Any
    ) -> tuple[Any, Any, Any]:
        """Returns (finished, the inputs of the next step or zeros, the state)."""
        finished = time + 1 >= self._sequence_length
        return finished, self._read(time + 1, tf.reduce_all(finished)), state

    def _read(self, time, none_left):
        return tf.cond(
            none_left,
            lambda: self._zero_inputs,
            lambda: tf.nest.map_structure(lambda array: array.read(time), self._input_tas),
        )


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Scheduled sampling: with some probability the next input is the embedding of a sample (Bengio et al. 2015).

    Args:
        inputs: tensor [batch, time, depth].
        sequence_length: int32 [batch].
        embedding: a table [classes, depth], or ids -> embeddings.
        sampling_probability: float32 scalar or [batch].
        time_major: bool.
        seed: seed of the sampled ids.
        scheduling_seed: seed of the choice whether to sample.
        name: unused.

    The samples are -1 where the given input was read.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self._embedding_fn = _embedding_fn(embedding)
        self._sampling_probability = _probability(sampling_probability)
        self._seed = seed
        self._scheduling_seed = scheduling_seed
        super().__init__(inputs, sequence_length, time_major, name)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns int32 [batch]: a sampled id, or -1 where the next input is the given one."""
        chosen = _chosen(self._sampling_probability, self.batch_size, self._scheduling_seed)
        ids = _categorical(outputs, self._seed)
        return tf.where(chosen, ids, tf.fill([self.batch_size], -1))

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (finished, embeddings of the samples where there are some, the state)."""
        finished, base, state = super().next_inputs(time, outputs, state)

        def mixed():
            sampled = tf.cast(tf.where(sample_ids > -1), tf.int32)
            given = tf.cast(tf.where(sample_ids <= -1), tf.int32)
            embedded = self._embedding_fn(tf.gather_nd(sample_ids, sampled))
            shape = tf.shape(base)
            return tf.scatter_nd(sampled, embedded, shape) + tf.scatter_nd(given, tf.gather_nd(base, given), shape)

        return finished, tf.cond(tf.reduce_all(finished), lambda: base, mixed), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """Scheduled sampling of outputs: with some probability the next input is the last output.

    Args:
        inputs: tensor [batch, time, depth].
        sequence_length: int32 [batch].
        sampling_probability: float32 scalar or [batch].
        time_major: bool.
        seed: seed of the choice whether to sample.
        next_inputs_fn: optional, makes inputs from outputs.
        auxiliary_inputs: optional (nested) tensors like `inputs`, concatenated to the inputs in either case.
        name: unused.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        next_inputs_fn: Any = None,
        auxiliary_inputs: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self._sampling_probability = _probability(sampling_probability)
        self._seed = seed
        self._next_inputs_fn = next_inputs_fn
        self._auxiliary = None
        given = inputs
        if auxiliary_inputs is not None:
            given = tf.nest.map_structure(lambda x, y: tf.concat([x, y], -1), inputs, auxiliary_inputs)
            by_time = auxiliary_inputs
            if not time_major:
                by_time = tf.nest.map_structure(lambda x: _transpose_batch_time(tf.convert_to_tensor(x)), by_time)
            self._auxiliary = tf.nest.map_structure(_unstacked, by_time)
        super().__init__(given, sequence_length, time_major, name)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns int32 [batch]: 1 where the next input is the output."""
        return tf.cast(_chosen(self._sampling_probability, self.batch_size, self._seed), tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (finished, next inputs, the state)."""
        finished, base, state = super().next_inputs(time, outputs, state)

        def mixed():
            inputs = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
            if self._auxiliary is not None:
                inputs = tf.nest.map_structure(
                    lambda x, a: tf.concat([x, a.read(time + 1)], -1), inputs, self._auxiliary
                )
            return tf.nest.map_structure(lambda x, y: tf.where(tf.cast(sample_ids, tf.bool), x, y), inputs, base)

        return finished, tf.cond(tf.reduce_all(finished), lambda: base, mixed), state


def _probability(value):
    value = tf.convert_to_tensor(value, name="sampling_probability")
    if value.shape.ndims not in (0, 1):
        raise ValueError("sampling_probability must be either a scalar or a vector. saw shape: %s" % value.shape)
    return value


def _chosen(probability, batch_size, seed):
    """Bool [batch]: True with the given probability."""
    return tf.random_uniform([batch_size], dtype=probability.dtype, seed=seed) < probability


def _unstacked(x):
    """A TensorArray of the entries along the first axis."""
    return tf.TensorArray(x.dtype, tf.shape(x)[0], element_shape=x.shape[1:]).unstack(x)
