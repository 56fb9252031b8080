"""Decoders of tf.contrib.seq2seq as Keras layers, which decode when they are called (behaviour of 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.beam_search import BeamSearchDecoder
from npu_shim.compat.contrib.seq2seq.decoders import BasicDecoder, Decoder, dynamic_decode


class BaseDecoder(tf.keras.layers.Layer):
    """A layer that gives (outputs, final state, sequence lengths) of `dynamic_decode`.

    Subclasses have the methods and properties of a Decoder; their `initialize` takes what the layer is called with.

    Args:
        output_time_major: see `dynamic_decode`, as all but the last.
        impute_finished: bool.
        maximum_iterations: optional int32 scalar.
        parallel_iterations: int.
        swap_memory: bool.
        **kwargs: of the layer.
    """

    tracks_own_finished = False

    def __init__(
        self,
        output_time_major: bool = False,
        impute_finished: bool = False,
        maximum_iterations: Any = None,
        parallel_iterations: int = 32,
        swap_memory: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_time_major = output_time_major
        self.impute_finished = impute_finished
        self.maximum_iterations = maximum_iterations
        self.parallel_iterations = parallel_iterations
        self.swap_memory = swap_memory

    def call(self, inputs: Any, initial_state: Any = None, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Decodes; returns (outputs, final state, sequence lengths)."""
        return self._decoded(inputs, initial_state=initial_state, **kwargs)

    def _decoded(self, *args, training=None, **kwargs):  # Keras adds `training`
        return dynamic_decode(
            _Started(self, args, kwargs), self.output_time_major, self.impute_finished, self.maximum_iterations,
            self.parallel_iterations, self.swap_memory,
        )  # fmt: skip

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Returns (outputs, final state) after the loop."""
        raise NotImplementedError


class _Started(Decoder):
    """A layer with what it is called with, as the Decoder that `dynamic_decode` steps."""

    def __init__(self, layer, args, kwargs):
        self._layer, self._args, self._kwargs = layer, args, kwargs

    @property
    def batch_size(self):
        return self._layer.batch_size

    @property
    def output_size(self):
        return self._layer.output_size

    @property
    def output_dtype(self):
        return self._layer.output_dtype

    @property
    def tracks_own_finished(self):
        return self._layer.tracks_own_finished

    def initialize(self, name=None):
        return self._layer.initialize(*self._args, **self._kwargs)

    def step(self, time, inputs, state, name=None):
        return self._layer.step(time, inputs, state)

    def finalize(self, outputs, final_state, sequence_lengths):
        return self._layer.finalize(outputs, final_state, sequence_lengths)


class _DecoderLayer(BaseDecoder):
    """A layer whose `initialize` makes the Decoder that does the work."""

    _decoder: Any = None

    @property
    def batch_size(self) -> Any:
        """int32 scalar."""
        return self._decoder.batch_size

    @property
    def output_size(self) -> Any:
        """(Nested) sizes of one step's output, without the batch."""
        return self._decoder.output_size

    @property
    def output_dtype(self) -> Any:
        """(Nested) dtypes of one step's output."""
        return self._decoder.output_dtype

    def step(self, time: Any, inputs: Any, state: Any) -> tuple[Any, Any, Any, Any]:
        """Returns (outputs, next state, next inputs, finished) of step `time`."""
        return self._decoder.step(time, inputs, state)

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Returns (outputs, final state) after the loop."""
        return self._decoder.finalize(outputs, final_state, sequence_lengths)


class BasicDecoderV2(_DecoderLayer):
    """BasicDecoder as a layer, called with inputs, `initial_state` and what the sampler takes.

    Args:
        cell: an RNNCell.
        sampler: a Sampler.
        output_layer: optional layer, applied to the cell's output before sampling and storing.
        **kwargs: of BaseDecoder.
    """

    def __init__(self, cell: Any, sampler: Any, output_layer: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell
        self.sampler = sampler
        self.output_layer = output_layer

    def initialize(self, inputs: Any, initial_state: Any = None, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Returns (finished, first inputs, initial state)."""
        self._decoder = BasicDecoder(self.cell, self.sampler, initial_state, self.output_layer)
        return (*self.sampler.initialize(inputs, **kwargs), initial_state)


class BeamSearchDecoderV2(_DecoderLayer):
    """BeamSearchDecoder as a layer, called with embedding, start_tokens, end_token and initial_state.

    Args:
        cell: an RNNCell.
        beam_width: int.
        embedding_fn: ids -> embeddings, or None: the layer is called with a table.
        output_layer: optional layer that turns the cell's output into logits.
        length_penalty_weight: float, 0 for none.
        coverage_penalty_weight: float, 0 for none.
        reorder_tensor_arrays: whether TensorArrays in the state are sorted by the final beams.
        **kwargs: of BaseDecoder.
    """

    tracks_own_finished = True

    def __init__(
        self,
        cell: Any,
        beam_width: int,
        embedding_fn: Any = None,
        output_layer: Any = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cell = cell
        self.output_layer = output_layer
        self._beams = (beam_width, output_layer, length_penalty_weight, coverage_penalty_weight, reorder_tensor_arrays)
        self._embedding_fn = embedding_fn

    def call(
        self, embedding: Any, start_tokens: Any, end_token: Any, initial_state: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        """Decodes; returns (outputs, final state, sequence lengths)."""
        return self._decoded(embedding, start_tokens, end_token, initial_state, **kwargs)

    def initialize(
        self, embedding: Any, start_tokens: Any, end_token: Any, initial_state: Any
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Returns (finished, first inputs, first state)."""
        table = embedding if self._embedding_fn is None else self._embedding_fn
        self._decoder = BeamSearchDecoder(self.cell, table, start_tokens, end_token, initial_state, *self._beams)
        return self._decoder.initialize()
