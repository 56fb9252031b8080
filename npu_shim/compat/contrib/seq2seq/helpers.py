"""The helpers of tf.contrib.seq2seq, which choose what a BasicDecoder samples and reads next (as in 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Helper:
    """The interface that BasicDecoder expects of a helper."""

    @property
    def batch_size(self) -> Any:
        """int32 scalar."""
        raise NotImplementedError

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of one sample, without the batch."""
        raise NotImplementedError

    @property
    def sample_ids_dtype(self) -> Any:
        """Dtype of the samples."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns (finished bool [batch], first inputs)."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the samples of this step."""
        raise NotImplementedError

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (finished, next inputs, next state)."""
        raise NotImplementedError


class _Sampling(Helper):
    """A helper that knows the batch, and the shape and dtype of a sample."""

    _batch_size: Any = None
    _sample_ids_shape: Any = tf.TensorShape([])
    _sample_ids_dtype: Any = tf.int32

    @property
    def batch_size(self) -> Any:
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        return self._sample_ids_shape

    @property
    def sample_ids_dtype(self) -> Any:
        return self._sample_ids_dtype


class CustomHelper(_Sampling):
    """A helper made of three functions.

    Args:
        initialize_fn: () -> (finished, next_inputs).
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
        self._sample_fn = sample_fn
        self._next_inputs_fn = next_inputs_fn
        self._sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self._sample_ids_dtype = sample_ids_dtype or tf.int32

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns (finished, first inputs) of `initialize_fn`."""
        finished, next_inputs = self._initialize_fn()
        if self._batch_size is None:
            self._batch_size = tf.size(finished)
        return finished, next_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns what `sample_fn` returns."""
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns what `next_inputs_fn` returns."""
        return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class GreedyEmbeddingHelper(_Sampling):
    """Reads the embedding of the most probable id of the last step.

    Args:
        embedding: a table [classes, depth], or ids -> embeddings.
        start_tokens: int32 [batch].
        end_token: int32 scalar, the id that ends a sequence.

    Raises:
        ValueError: `start_tokens` is not a vector or `end_token` not a scalar.
    """

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding_fn = _embedding_fn(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = tf.size(self._start_tokens)
        self._start_inputs = self._embedding_fn(self._start_tokens)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns (nothing has finished, the embeddings of the start tokens)."""
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the arg max of the outputs (logits [batch, classes]), int32 [batch]."""
        if not isinstance(outputs, tf.Tensor):
            raise TypeError("Expected outputs to be a single Tensor, got: %s" % type(outputs))
        return tf.argmax(outputs, axis=-1, output_type=tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (which have met the end token, embeddings of the samples, the state)."""
        finished = tf.equal(sample_ids, self._end_token)
        # when all have finished, what is read does not matter
        next_inputs = tf.cond(
            tf.reduce_all(finished), lambda: self._start_inputs, lambda: self._embedding_fn(sample_ids)
        )
        return finished, next_inputs, state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """As GreedyEmbeddingHelper, but the id is sampled from the softmax of the outputs.

    Args:
        embedding: a table [classes, depth], or ids -> embeddings.
        start_tokens: int32 [batch].
        end_token: int32 scalar.
        softmax_temperature: optional float32 scalar, divides the logits.
        seed: int.
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._softmax_temperature = softmax_temperature
        self._seed = seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns sampled ids, int32 [batch]."""
        if not isinstance(outputs, tf.Tensor):
            raise TypeError("Expected outputs to be a single Tensor, got: %s" % type(outputs))
        logits = outputs if self._softmax_temperature is None else outputs / self._softmax_temperature
        return _categorical(logits, self._seed)


class InferenceHelper(_Sampling):
    """Samples with one function and stops with another.

    Args:
        sample_fn: outputs -> samples.
        sample_shape: shape of one sample, without the batch.
        sample_dtype: dtype of the samples.
        start_inputs: tensor [batch, ...].
        end_fn: samples -> bool [batch].
        next_inputs_fn: optional, samples -> next inputs; the samples themselves otherwise.
    """

    def __init__(
        self,
        sample_fn: Any,
        sample_shape: Any,
        sample_dtype: Any,
        start_inputs: Any,
        end_fn: Any,
        next_inputs_fn: Any = None,
    ) -> None:
        self._sample_fn = sample_fn
        self._end_fn = end_fn
        self._sample_ids_shape = tf.TensorShape(sample_shape)
        self._sample_ids_dtype = sample_dtype
        self._next_inputs_fn = next_inputs_fn
        self._start_inputs = tf.convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = tf.shape(self._start_inputs)[0]

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Returns (nothing has finished, the start inputs)."""
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns what `sample_fn` makes of the outputs."""
        return self._sample_fn(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (what `end_fn` says, the next inputs, the state)."""
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state


def _embedding_fn(embedding):
    return embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)


def _categorical(logits, seed):
    return tf.cast(tf.squeeze(tf.multinomial(logits, 1, seed=seed), -1), tf.int32)
