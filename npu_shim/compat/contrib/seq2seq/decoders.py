"""The decoding loop of tf.contrib.seq2seq: Decoder, BasicDecoder, dynamic_decode (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.loops import transpose_batch_time

BasicDecoderOutput = collections.namedtuple("BasicDecoderOutput", ["rnn_output", "sample_id"])


class Decoder:
    """The interface that `dynamic_decode` expects of a decoder."""

    @property
    def batch_size(self) -> Any:
        """int32 scalar."""
        raise NotImplementedError

    @property
    def output_size(self) -> Any:
        """(Nested) sizes of one step's output, without the batch."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """(Nested) dtypes of one step's output."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Returns (finished, first inputs, initial state); `finished` is bool [batch]."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns (outputs, next state, next inputs, finished) of step `time`."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Returns (outputs, final state) after the loop; the outputs are [time, batch, ...]."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether `finished` may go back to False, as a beam search's does when it reorders its beams."""
        return False


class BasicDecoder(Decoder):
    """Runs a step of a cell; a helper samples from its output and chooses the next inputs.

    Args:
        cell: an RNNCell.
        helper: a Helper.
        initial_state: (nested) tensors [batch, ...], the cell's first state.
        output_layer: optional tf.layers.Layer, applied to the cell's output before sampling and storing.

    Raises:
        TypeError: `helper` is not a Helper, or `output_layer` not a layer.
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        if not hasattr(helper, "next_inputs"):
            raise TypeError("helper must be a Helper, received: %s" % type(helper))
        if output_layer is not None and not callable(output_layer):
            raise TypeError("output_layer must be a Layer, received: %s" % type(output_layer))
        self._cell = cell
        self._helper = helper
        self._initial_state = initial_state
        self._output_layer = output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    def _rnn_output_size(self):
        size = self._cell.output_size
        if self._output_layer is None:
            return size
        # the layer sees a batch of unknown size in front of each shape
        with_batch = tf.nest.map_structure(lambda s: tf.TensorShape([None]).concatenate(s), size)
        after = tf.nest.map_structure(self._output_layer.compute_output_shape, with_batch)
        return tf.nest.map_structure(lambda s: s[1:], after)

    @property
    def output_size(self) -> Any:
        return BasicDecoderOutput(rnn_output=self._rnn_output_size(), sample_id=self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        return BasicDecoderOutput(
            tf.nest.map_structure(lambda _: dtype, self._rnn_output_size()), self._helper.sample_ids_dtype
        )

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Returns (finished, first inputs, initial state)."""
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns (BasicDecoderOutput, next state, next inputs, finished)."""
        with tf.name_scope(name, "BasicDecoderStep", (time, inputs, state)):
            cell_outputs, cell_state = self._cell(inputs, state)
            if self._output_layer is not None:
                cell_outputs = self._output_layer(cell_outputs)
            sample_ids = self._helper.sample(time=time, outputs=cell_outputs, state=cell_state)
            finished, next_inputs, next_state = self._helper.next_inputs(
                time=time, outputs=cell_outputs, state=cell_state, sample_ids=sample_ids
            )
        return BasicDecoderOutput(cell_outputs, sample_ids), next_state, next_inputs, finished


def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Steps a decoder until every sequence has finished.

    Args:
        decoder: a Decoder.
        output_time_major: False for outputs [batch, time, ...], True for [time, batch, ...].
        impute_finished: whether a finished sequence keeps its state and gives zeros.
        maximum_iterations: optional int32 scalar, the most steps taken.
        parallel_iterations: int, as in tf.while_loop.
        swap_memory: bool, as in tf.while_loop.
        scope: optional variable scope, "decoder" otherwise.

    Returns:
        (outputs, final state, sequence lengths): the lengths are int32 [batch].

    Raises:
        TypeError: `decoder` is not a Decoder.
        ValueError: `maximum_iterations` is not a scalar.
    """
    if not isinstance(decoder, Decoder):
        raise TypeError("Expected decoder to be type Decoder, but saw: %s" % type(decoder))
    with tf.variable_scope(scope, "decoder") as varscope:
        # what reads a variable inside the loop is not cached on a device outside of it
        inside = tf.executing_eagerly() or tf.get_default_graph()._get_control_flow_context() is not None
        if not inside and varscope.caching_device is None:
            varscope.set_caching_device(lambda op: op.device)
        limit = _limit(maximum_iterations)
        finished, inputs, state = decoder.initialize()
        zeros = _create_zero_outputs(decoder.output_size, decoder.output_dtype, decoder.batch_size)
        if limit is not None:
            finished = tf.logical_or(finished, limit <= 0)
        arrays = tf.nest.map_structure(
            lambda dtype, zero: tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=zero.shape),
            decoder.output_dtype, zeros,
        )  # fmt: skip
        lengths = tf.zeros_like(finished, dtype=tf.int32)
        loop = (tf.constant(0, tf.int32), arrays, state, inputs, finished, lengths)
        _, arrays, state, _, _, lengths = tf.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            lambda *loop: _step(decoder, zeros, impute_finished, limit, *loop),
            loop_vars=loop,
            parallel_iterations=parallel_iterations,
            maximum_iterations=limit,
            swap_memory=swap_memory,
        )
        outputs = tf.nest.map_structure(lambda array: array.stack(), arrays)
        with contextlib.suppress(NotImplementedError):
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = tf.nest.map_structure(_transpose_batch_time, outputs)
    return outputs, state, lengths


def _limit(maximum_iterations):
    if maximum_iterations is None:
        return None
    limit = tf.convert_to_tensor(maximum_iterations, tf.int32, name="maximum_iterations")
    if limit.shape.ndims != 0:
        raise ValueError("maximum_iterations must be a scalar")
    return limit


def _step(decoder, zeros, impute_finished, limit, time, arrays, state, inputs, finished, lengths):
    """The loop's body."""
    outputs, next_state, next_inputs, now_finished = decoder.step(time, inputs, state)
    tf.nest.assert_same_structure(state, next_state)
    tf.nest.assert_same_structure(inputs, next_inputs)
    if not decoder.tracks_own_finished:
        now_finished = tf.logical_or(now_finished, finished)
    next_lengths = tf.where(tf.logical_not(finished), tf.fill(tf.shape(lengths), time + 1), lengths)
    if limit is not None:
        now_finished = tf.logical_or(now_finished, time + 1 >= limit)
    if impute_finished:
        outputs = tf.nest.map_structure(lambda out, zero: tf.where(finished, zero, out), outputs, zeros)
        next_state = tf.nest.map_structure(lambda new, old: _kept(finished, new, old), next_state, state)
    arrays = tf.nest.map_structure(lambda array, out: array.write(time, out), arrays, outputs)
    return time + 1, arrays, next_state, next_inputs, now_finished, next_lengths


def _kept(finished, new, old):
    """The old state where a sequence has finished; TensorArrays and what has no batch dimension take the new one."""
    if isinstance(old, tf.TensorArray) or old.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return tf.where(finished, old, new)


def _create_zero_outputs(size, dtype, batch_size):
    """Zeros [batch, ...] for a structure of sizes and one of dtypes."""
    static = tf.get_static_value(tf.convert_to_tensor(batch_size))

    def zeros(size, dtype):
        shape = tf.TensorShape(size)
        if not shape.is_fully_defined():
            raise ValueError("npu_shim: dynamic_decode: the decoder's output_size %s is not fully defined" % shape)
        zeros = tf.zeros(tf.concat([[batch_size], tf.constant(shape.as_list(), tf.int32)], 0), dtype)
        zeros.set_shape(tf.TensorShape([static]).concatenate(shape))
        return zeros

    return tf.nest.map_structure(zeros, size, dtype)


def _transpose_batch_time(x):
    """[time, batch, ...] -> [batch, time, ...] and back; what has fewer dimensions stays."""
    if x.shape.ndims is not None and x.shape.ndims < 2:
        return x
    return transpose_batch_time(x)
