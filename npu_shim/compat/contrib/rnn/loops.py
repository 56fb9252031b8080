"""Stacked bidirectional layers (behaviour and variable names of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def stack_bidirectional_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Layers of tf.nn.static_bidirectional_rnn; each reads both directions of the one below.

    Args:
        cells_fw: list of RNNCell, one per layer.
        cells_bw: list of RNNCell, one per layer.
        inputs: list of [batch, depth].
        initial_states_fw: optional list of states.
        initial_states_bw: optional list of states.
        dtype: of the zero states.
        sequence_length: optional int32 [batch].
        scope: optional variable scope.

    Returns:
        (list of outputs [batch, both depths], tuple of forward states, tuple of backward states).

    Raises:
        ValueError: the cells are not two lists of one length, or there are not as many states.
    """

    def layer(inputs, cell_scope, fw, bw, state_fw, state_bw):
        return tf.nn.static_bidirectional_rnn(
            fw, bw, inputs, state_fw, state_bw, dtype=dtype, sequence_length=sequence_length, scope=cell_scope
        )

    return _stacked(inputs, _layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw), layer, scope)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: Any = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """As `stack_bidirectional_rnn` with tf.nn.bidirectional_dynamic_rnn, whose arguments are the others.

    Inputs and outputs are [batch, time, depth], or [time, batch, depth] if `time_major`.
    """

    def layer(inputs, cell_scope, fw, bw, state_fw, state_bw):
        outputs, states = tf.nn.bidirectional_dynamic_rnn(
            fw, bw, inputs, initial_state_fw=state_fw, initial_state_bw=state_bw, dtype=dtype,
            sequence_length=sequence_length, parallel_iterations=parallel_iterations, time_major=time_major,
            swap_memory=swap_memory,
        )  # fmt: skip
        return (tf.concat(outputs, 2), *states)

    return _stacked(inputs, _layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw), layer, scope)


def _stacked(inputs, layers, layer, scope):
    """(Outputs, forward states, backward states) of layers; each reads both directions of the one below."""
    states = []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, cells_and_states in enumerate(layers):
            with tf.variable_scope("cell_%d" % index) as cell_scope:
                inputs, *both = layer(inputs, cell_scope, *cells_and_states)
            states.append(both)
    return (inputs, *map(tuple, zip(*states)))


def _layers(cells_fw, cells_bw, states_fw, states_bw):
    """(forward cell, backward cell, their states) of each layer."""
    for cells, name in ((cells_fw, "cells_fw"), (cells_bw, "cells_bw")):
        if not cells:
            raise ValueError("Must specify at least one %s cell for BidirectionalRNN." % name[-2:])
        if not isinstance(cells, list):
            raise ValueError("%s must be a list of RNNCells (one per layer)." % name)
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    for states, name in ((states_fw, "initial_states_fw"), (states_bw, "initial_states_bw")):
        if states is not None and (not isinstance(states, list) or len(states) != len(cells_fw)):
            raise ValueError("%s must be a list of state tensors (one per layer)." % name)
    nothing = [None] * len(cells_fw)
    return zip(cells_fw, cells_bw, states_fw or nothing, states_bw or nothing)


def transpose_batch_time(x: Any) -> tf.Tensor:
    """[time, batch, ...] -> [batch, time, ...] and back."""
    if x.shape.ndims is not None and x.shape.ndims < 2:
        raise ValueError("Expected input tensor %s to have rank at least 2, but saw shape: %s" % (x, x.shape))
    turned = tf.transpose(x, tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0))
    if x.shape.ndims is not None:
        turned.set_shape(tf.TensorShape([x.shape[1], x.shape[0]]).concatenate(x.shape[2:]))
    return turned
