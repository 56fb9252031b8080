"""The helpers of tf.contrib.seq2seq, which choose what a BasicDecoder samples and reads next (as in 1.15.5)."""

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.decoders import _transpose_batch_time


class Helper:
    """The interface that BasicDecoder expects of a helper."""

    @property
    def batch_size(self):
        """int32 scalar."""
        raise NotImplementedError

    @property
    def sample_ids_shape(self):
        """Shape of one sample, without the batch."""
        raise NotImplementedError

    @property
    def sample_ids_dtype(self):
        """Dtype of the samples."""
        raise NotImplementedError

    def initialize(self, name=None):
        """Returns (finished bool [batch], first inputs)."""
        raise NotImplementedError

    def sample(self, time, outputs, state, name=None):
        """Returns the samples of this step."""
        raise NotImplementedError

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        """Returns (finished, next inputs, next state)."""
        raise NotImplementedError


class CustomHelper(Helper):
    """A helper made of three functions.

    Args:
        initialize_fn: () -> (finished, next_inputs).
        sample_fn: (time, outputs, state) -> samples.
        next_inputs_fn: (time, outputs, state, sample_ids) -> (finished, next_inputs, next_state).
        sample_ids_shape: shape of one sample, [] by default.
        sample_ids_dtype: int32 by default.
    """

    def __init__(self, initialize_fn, sample_fn, next_inputs_fn, sample_ids_shape=None, sample_ids_dtype=None):
        self._initialize_fn = initialize_fn
        self._sample_fn = sample_fn
        self._next_inputs_fn = next_inputs_fn
        self._batch_size = None
        self._sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self._sample_ids_dtype = sample_ids_dtype or tf.int32

    @property
    def batch_size(self):
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    @property
    def sample_ids_shape(self):
        return self._sample_ids_shape

    @property
    def sample_ids_dtype(self):
        return self._sample_ids_dtype

    def initialize(self, name=None):
        """Returns (finished, first inputs) of `initialize_fn`."""
        finished, next_inputs = self._initialize_fn()
        if self._batch_size is None:
            self._batch_size = tf.size(finished)
        return finished, next_inputs

    def sample(self, time, outputs, state, name=None):
        """Returns what `sample_fn` returns."""
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        """Returns what `next_inputs_fn` returns."""
        return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class _Int32Samples(Helper):
    """A helper whose samples are int32 scalars."""

    @property
    def batch_size(self):
        return self._batch_size

    @property
    def sample_ids_shape(self):
        return tf.TensorShape([])

    @property
    def sample_ids_dtype(self):
        return tf.int32


class TrainingHelper(_Int32Samples):
    """Reads the given inputs step by step (teacher forcing).

    Args:
        inputs: (nested) tensors [batch, time, ...], or [time, batch, ...] with `time_major`.
        sequence_length: int32 [batch].
        time_major: bool.
        name: unused.

    Raises:
        ValueError: `sequence_length` is not a vector.
    """

    def __init__(self, inputs, sequence_length, time_major=False, name=None):
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
    def inputs(self):
        """The inputs as they were given."""
        return self._inputs

    @property
    def sequence_length(self):
        """int32 [batch]."""
        return self._sequence_length

    def initialize(self, name=None):
        """Returns (which sequences are empty, the first inputs)."""
        finished = tf.equal(0, self._sequence_length)
        return finished, self._read(0, tf.reduce_all(finished))

    def sample(self, time, outputs, name=None, **unused):
        """Returns the arg max of the outputs, int32 [batch]."""
        return tf.cast(tf.argmax(outputs, axis=-1), tf.int32)

    def next_inputs(self, time, outputs, state, name=None, **unused):
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
        self, inputs, sequence_length, embedding, sampling_probability, time_major=False, seed=None,
        scheduling_seed=None, name=None,
    ):  # fmt: skip
        self._embedding_fn = _embedding_fn(embedding)
        self._sampling_probability = _probability(sampling_probability)
        self._seed = seed
        self._scheduling_seed = scheduling_seed
        super().__init__(inputs, sequence_length, time_major, name)

    def sample(self, time, outputs, state, name=None):
        """Returns int32 [batch]: a sampled id, or -1 where the next input is the given one."""
        chosen = _chosen(self._sampling_probability, self.batch_size, self._scheduling_seed)
        ids = _categorical(outputs, self._seed)
        return tf.where(chosen, ids, tf.fill([self.batch_size], -1))

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
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
        self, inputs, sequence_length, sampling_probability, time_major=False, seed=None, next_inputs_fn=None,
        auxiliary_inputs=None, name=None,
    ):  # fmt: skip
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

    def sample(self, time, outputs, state, name=None):
        """Returns int32 [batch]: 1 where the next input is the output."""
        return tf.cast(_chosen(self._sampling_probability, self.batch_size, self._seed), tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        """Returns (finished, next inputs, the state)."""
        finished, base, state = super().next_inputs(time, outputs, state)

        def mixed():
            made = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
            if self._auxiliary is not None:
                made = tf.nest.map_structure(lambda x, a: tf.concat([x, a.read(time + 1)], -1), made, self._auxiliary)
            return tf.nest.map_structure(lambda x, y: tf.where(tf.cast(sample_ids, tf.bool), x, y), made, base)

        return finished, tf.cond(tf.reduce_all(finished), lambda: base, mixed), state


class GreedyEmbeddingHelper(_Int32Samples):
    """Reads the embedding of the most probable id of the last step.

    Args:
        embedding: a table [classes, depth], or ids -> embeddings.
        start_tokens: int32 [batch].
        end_token: int32 scalar, the id that ends a sequence.

    Raises:
        ValueError: `start_tokens` is not a vector or `end_token` not a scalar.
    """

    def __init__(self, embedding, start_tokens, end_token):
        self._embedding_fn = _embedding_fn(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = tf.size(self._start_tokens)
        self._start_inputs = self._embedding_fn(self._start_tokens)

    def initialize(self, name=None):
        """Returns (nothing has finished, the embeddings of the start tokens)."""
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time, outputs, state, name=None):
        """Returns the arg max of the outputs (logits [batch, classes]), int32 [batch]."""
        if not isinstance(outputs, tf.Tensor):
            raise TypeError("Expected outputs to be a single Tensor, got: %s" % type(outputs))
        return tf.argmax(outputs, axis=-1, output_type=tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
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

    def __init__(self, embedding, start_tokens, end_token, softmax_temperature=None, seed=None):
        super().__init__(embedding, start_tokens, end_token)
        self._softmax_temperature = softmax_temperature
        self._seed = seed

    def sample(self, time, outputs, state, name=None):
        """Returns sampled ids, int32 [batch]."""
        if not isinstance(outputs, tf.Tensor):
            raise TypeError("Expected outputs to be a single Tensor, got: %s" % type(outputs))
        logits = outputs if self._softmax_temperature is None else outputs / self._softmax_temperature
        return _categorical(logits, self._seed)


class InferenceHelper(Helper):
    """Samples with one function and stops with another.

    Args:
        sample_fn: outputs -> samples.
        sample_shape: shape of one sample, without the batch.
        sample_dtype: dtype of the samples.
        start_inputs: tensor [batch, ...].
        end_fn: samples -> bool [batch].
        next_inputs_fn: optional, samples -> next inputs; the samples themselves otherwise.
    """

    def __init__(self, sample_fn, sample_shape, sample_dtype, start_inputs, end_fn, next_inputs_fn=None):
        self._sample_fn = sample_fn
        self._end_fn = end_fn
        self._sample_shape = tf.TensorShape(sample_shape)
        self._sample_dtype = sample_dtype
        self._next_inputs_fn = next_inputs_fn
        self._start_inputs = tf.convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = tf.shape(self._start_inputs)[0]

    @property
    def batch_size(self):
        return self._batch_size

    @property
    def sample_ids_shape(self):
        return self._sample_shape

    @property
    def sample_ids_dtype(self):
        return self._sample_dtype

    def initialize(self, name=None):
        """Returns (nothing has finished, the start inputs)."""
        return tf.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time, outputs, state, name=None):
        """Returns what `sample_fn` makes of the outputs."""
        return self._sample_fn(outputs)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        """Returns (what `end_fn` says, the next inputs, the state)."""
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state


def _embedding_fn(embedding):
    return embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)


def _probability(value):
    value = tf.convert_to_tensor(value, name="sampling_probability")
    if value.shape.ndims not in (0, 1):
        raise ValueError("sampling_probability must be either a scalar or a vector. saw shape: %s" % value.shape)
    return value


def _chosen(probability, batch_size, seed):
    """Bool [batch]: True with the given probability."""
    return tf.random_uniform([batch_size], dtype=probability.dtype, seed=seed) < probability


def _categorical(logits, seed):
    return tf.cast(tf.squeeze(tf.multinomial(logits, 1, seed=seed), -1), tf.int32)


def _unstacked(x):
    """A TensorArray of the entries along the first axis."""
    return tf.TensorArray(x.dtype, tf.shape(x)[0], element_shape=x.shape[1:]).unstack(x)
