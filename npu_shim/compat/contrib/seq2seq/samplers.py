"""Samplers of tf.contrib.seq2seq: helpers that get their tensors when the decoder is called (as in 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq import helpers, training_helpers


class Sampler:
    """The interface that BasicDecoderV2 expects of a sampler; here, a helper made by `initialize` does the work."""

    _helper: Any = None
    _sample_ids_shape: Any = tf.TensorShape([])
    _sample_ids_dtype: Any = tf.int32

    def initialize(self, inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Takes the tensors; returns (finished bool [batch], first inputs)."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any) -> Any:
        """Returns the samples of this step."""
        return self._initialized_helper().sample(time=time, outputs=outputs, state=state)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any) -> tuple[Any, Any, Any]:
        """Returns (finished, next inputs, next state)."""
        return self._initialized_helper().next_inputs(time=time, outputs=outputs, state=state, sample_ids=sample_ids)

    @property
    def batch_size(self) -> Any:
        """int32 scalar; ValueError before `initialize`."""
        return self._initialized_helper().batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of one sample, without the batch."""
        return self._sample_ids_shape

    @property
    def sample_ids_dtype(self) -> Any:
        """Dtype of the samples."""
        return self._sample_ids_dtype

    def _starts(self, helper):
        self._helper = helper
        return helper.initialize()

    def _initialized_helper(self):
        if self._helper is None:
            raise ValueError("%s is used before initialize was called" % type(self).__name__)
        return self._helper


class CustomSampler(Sampler):
    """A sampler made of three functions.

    Args:
        initialize_fn: (inputs, **kwargs) -> (finished, next_inputs).
        sample_fn: (time, outputs, state) -> samples.
        next_inputs_fn: (time, outputs, state, sample_ids) -> (finished, next_inputs, next_state).
        sample_ids_shape: shape of one sample, [] by default.
        sample_ids_dtype: int32 by default.
    """

    def __init__(
        self,
        initialize_fn: Any,
        sample_fn: Any,
        next_inputs_fn: Any,
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:
        self._initialize_fn = initialize_fn
        self._functions = (sample_fn, next_inputs_fn)
        self._sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self._sample_ids_dtype = sample_ids_dtype or tf.int32

    def initialize(self, inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Returns what `initialize_fn` makes of the tensors."""
        return self._starts(helpers.CustomHelper(lambda: self._initialize_fn(inputs, **kwargs), *self._functions))


class TrainingSampler(Sampler):
    """Reads the given inputs (teacher forcing); see TrainingHelper.

    Args:
        time_major: whether inputs are [time, batch, ...].
    """

    def __init__(self, time_major: bool = False) -> None:
        self.time_major = time_major

    def initialize(self, inputs: Any, sequence_length: Any = None) -> tuple[Any, Any]:
        """Takes (nested) inputs and int32 [batch], their lengths; all steps by default."""
        return self._starts(training_helpers.TrainingHelper(**self._timed(inputs, sequence_length)))

    def _timed(self, inputs, sequence_length):
        if sequence_length is None:
            shape = tf.shape(tf.nest.flatten(inputs)[0])
            time, batch = (shape[0], shape[1]) if self.time_major else (shape[1], shape[0])
            sequence_length = tf.fill([batch], time)
        return {"inputs": inputs, "sequence_length": sequence_length, "time_major": self.time_major}


class ScheduledEmbeddingTrainingSampler(TrainingSampler):
    """Scheduled sampling of ids; see ScheduledEmbeddingTrainingHelper.

    Args:
        sampling_probability: float32 scalar or [batch].
        embedding_fn: ids -> embeddings, or None: `initialize` takes a table.
        time_major: bool.
        seed: of the sampled ids.
        scheduling_seed: of the choice whether to sample.
    """

    def __init__(
        self,
        sampling_probability: Any,
        embedding_fn: Any = None,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
    ) -> None:
        super().__init__(time_major)
        self._embedding_fn = embedding_fn
        self._options = {
            "sampling_probability": sampling_probability, "seed": seed, "scheduling_seed": scheduling_seed,
        }  # fmt: skip

    def initialize(self, inputs: Any, sequence_length: Any = None, embedding: Any = None) -> tuple[Any, Any]:
        """Takes inputs, their lengths, and a table [classes, depth] where there is no `embedding_fn`."""
        table = _given_embedding(self._embedding_fn, embedding)
        timed = self._timed(inputs, sequence_length)
        return self._starts(
            training_helpers.ScheduledEmbeddingTrainingHelper(embedding=table, **timed, **self._options)
        )


class ScheduledOutputTrainingSampler(TrainingSampler):
    """Scheduled sampling of the outputs themselves; see ScheduledOutputTrainingHelper.

    Args:
        sampling_probability: float32 scalar.
        time_major: bool.
        seed: of the choice whether to sample.
        next_inputs_fn: optional, outputs -> next inputs.
    """

    def __init__(
        self, sampling_probability: Any, time_major: bool = False, seed: int | None = None, next_inputs_fn: Any = None
    ) -> None:
        super().__init__(time_major)
        self._options = {"sampling_probability": sampling_probability, "seed": seed, "next_inputs_fn": next_inputs_fn}

    def sample(self, time: Any, outputs: Any, state: Any) -> Any:
        """int32 [batch]: 1 where the output is the next input."""
        return tf.cast(super().sample(time, outputs, state), self.sample_ids_dtype)

    def initialize(self, inputs: Any, sequence_length: Any = None, auxiliary_inputs: Any = None) -> tuple[Any, Any]:
        """Takes inputs, their lengths, and what is concatenated to each sampled input, or None."""
        timed = self._timed(inputs, sequence_length)
        return self._starts(
            training_helpers.ScheduledOutputTrainingHelper(auxiliary_inputs=auxiliary_inputs, **timed, **self._options)
        )


class GreedyEmbeddingSampler(Sampler):
    """Reads the embedding of the most probable id; see GreedyEmbeddingHelper.

    Args:
        embedding_fn: ids -> embeddings, or None: `initialize` takes a table.
    """

    def __init__(self, embedding_fn: Any = None) -> None:
        self._embedding_fn = embedding_fn

    def initialize(self, embedding: Any, start_tokens: Any = None, end_token: Any = None) -> tuple[Any, Any]:
        """Takes a table [classes, depth], int32 [batch] and an int32 scalar."""
        return self._starts(self._reading(_given_embedding(self._embedding_fn, embedding), start_tokens, end_token))

    def _reading(self, embedding, start_tokens, end_token):
        return helpers.GreedyEmbeddingHelper(embedding, start_tokens, end_token)


class SampleEmbeddingSampler(GreedyEmbeddingSampler):
    """Reads the embedding of an id that is sampled from the softmax of the outputs; see SampleEmbeddingHelper.

    Args:
        embedding_fn: ids -> embeddings, or None: `initialize` takes a table.
        softmax_temperature: optional float32 scalar, divides the logits.
        seed: int.
    """

    def __init__(self, embedding_fn: Any = None, softmax_temperature: Any = None, seed: int | None = None) -> None:
        super().__init__(embedding_fn)
        self._options = (softmax_temperature, seed)

    def _reading(self, embedding, start_tokens, end_token):
        return helpers.SampleEmbeddingHelper(embedding, start_tokens, end_token, *self._options)


class InferenceSampler(Sampler):
    """Samples with one function and stops with another; see InferenceHelper.

    Args:
        sample_fn: outputs -> samples.
        sample_shape: shape of one sample, without the batch.
        sample_dtype: dtype of the samples.
        end_fn: samples -> bool [batch].
        next_inputs_fn: optional, samples -> next inputs; the samples themselves otherwise.
    """

    def __init__(
        self, sample_fn: Any, sample_shape: Any, sample_dtype: Any, end_fn: Any, next_inputs_fn: Any = None
    ) -> None:
        self._functions = (sample_fn, sample_shape, sample_dtype)
        self._ends = (end_fn, next_inputs_fn)
        self._sample_ids_shape, self._sample_ids_dtype = tf.TensorShape(sample_shape), sample_dtype

    def initialize(self, start_inputs: Any) -> tuple[Any, Any]:
        """Takes the first inputs [batch, ...]."""
        return self._starts(helpers.InferenceHelper(*self._functions, start_inputs, *self._ends))


def _given_embedding(embedding_fn, embedding):
    if embedding_fn is None and embedding is None:
        raise ValueError("embedding is required as a keyword argument where the sampler has no embedding_fn")
    return embedding if embedding_fn is None else embedding_fn
