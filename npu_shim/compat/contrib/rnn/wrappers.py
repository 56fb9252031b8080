"""Cells of tf.contrib.rnn that wrap other cells (behaviour and variable names of TensorFlow 1.15.5)."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import RNNCell, linear


class Wrapper(RNNCell):
    """A cell with the wrapped cell's state.

    Args:
        cell: an RNNCell.
        reuse: whether the variables exist.
    """

    def __init__(self, cell: Any, reuse: bool | None = None) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the wrapped cell's zero state."""
        with tf.name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return self._cell.zero_state(batch_size, dtype)


class InputProjectionWrapper(Wrapper):
    """Maps the inputs to another depth first.

    Args:
        cell: an RNNCell.
        num_proj: int.
        activation: optional, applied to the result of the map.
        input_size: unused.
        reuse: whether the variables exist.
    """

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: int | None = None, reuse: bool | None = None
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj = num_proj
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns what the cell returns."""
        projected = linear(inputs, self._num_proj)
        return self._cell(self._activation(projected) if self._activation else projected, state)


class OutputProjectionWrapper(Wrapper):
    """Maps the output to another depth.

    Args:
        cell: an RNNCell.
        output_size: int, 1 or more.
        activation: optional, applied to the result of the map.
        reuse: whether the variables exist.
    """

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: bool | None = None) -> None:
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError("Parameter output_size must be > 0: %d." % output_size)
        self._output_size = output_size
        self._activation = activation

    @property
    def output_size(self) -> Any:
        return self._output_size

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, the cell's state)."""
        output, state = self._cell(inputs, state)
        projected = linear(output, self._output_size)
        return (self._activation(projected) if self._activation else projected), state


class EmbeddingWrapper(Wrapper):
    """Looks ids [batch] or [batch, 1] up in a table first.

    Args:
        cell: an RNNCell.
        embedding_classes: int.
        embedding_size: int.
        initializer: of the table; by default the scope's, or uniform with variance 1.
        reuse: whether the variables exist.
    """

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None, reuse: bool | None = None
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                "Both embedding_classes and embedding_size must be > 0: %d, %d." % (embedding_classes, embedding_size)
            )
        self._shape = [embedding_classes, embedding_size]
        self._initializer = initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns what the cell returns."""
        edge = math.sqrt(3)
        uniform = tf.random_uniform_initializer(-edge, edge)
        with tf.device("/cpu:0"):
            table = tf.get_variable(
                "embedding", self._shape, (state[0] if isinstance(state, tuple) else state).dtype,
                self._initializer or tf.get_variable_scope().initializer or uniform,
            )  # fmt: skip
            return self._cell(tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)


class HighwayWrapper(Wrapper):
    """output = carry * input + transform * cell output (Srivastava et al. 2015).

    Args:
        cell: an RNNCell whose output has the depth of its inputs.
        couple_carry_transform_gates: whether transform is 1 - carry.
        carry_bias_init: initial bias of the carry gate.
    """

    def __init__(self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0) -> None:
        super().__init__(cell)
        self._couple = couple_carry_transform_gates
        self._carry_bias_init = carry_bias_init

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (output, the cell's state)."""
        outputs, state = self._cell(inputs, state, scope=scope)
        tf.nest.assert_same_structure(inputs, outputs)
        return tf.nest.map_structure(self._highway, inputs, outputs), state

    def _highway(self, x, output):
        x.shape.assert_is_compatible_with(output.shape)
        carry = self._gate("carry", x, self._carry_bias_init)
        transform = 1 - carry if self._couple else self._gate("transform", x, -self._carry_bias_init)
        return x * carry + output * transform

    def _gate(self, name, x, bias):
        depth = x.shape.with_rank(2).as_list()[1]
        kernel = tf.get_variable(name + "_w", [depth, depth])
        return tf.sigmoid(
            tf.nn.xw_plus_b(x, kernel, tf.get_variable(name + "_b", [depth], initializer=tf.constant_initializer(bias)))
        )


class AttentionCellWrapper(RNNCell):
    """Attends to the last `attn_length` outputs (Bahdanau et al. 2015, as in Cheng et al. 2016).

    Args:
        cell: an RNNCell.
        attn_length: int, the number of outputs kept.
        attn_size: int, the depth of the kept outputs; the cell's output size by default.
        attn_vec_size: int, the depth in which query and outputs are compared; `attn_size` by default.
        input_size: int, the depth of the cell's inputs; by default that of the inputs.
        state_is_tuple: whether the state is (cell state, attention, outputs), concatenated otherwise.
        reuse: whether the variables exist.

    Raises:
        ValueError: `attn_length` is not positive, or the cell's state is a tuple without `state_is_tuple`.
    """

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        if tf.nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError(
                "Cell returns tuple of states, but the flag state_is_tuple is not set. State size is: %s"
                % str(cell.state_size)
            )
        if attn_length <= 0:
            raise ValueError("attn_length should be greater than zero, got %s" % attn_length)
        self._cell = cell
        self._attn_length = attn_length
        self._attn_size = cell.output_size if attn_size is None else attn_size
        self._attn_vec_size = self._attn_size if attn_vec_size is None else attn_vec_size
        self._input_size = input_size
        self._state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> Any:
        size = (self._cell.state_size, self._attn_size, self._attn_size * self._attn_length)
        return size if self._state_is_tuple else sum(size)

    @property
    def output_size(self) -> Any:
        return self._attn_size

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, next state)."""
        sizes = [self._cell.state_size, self._attn_size, self._attn_size * self._attn_length]
        state, attention, kept = state if self._state_is_tuple else tf.split(state, sizes, 1)
        kept = tf.reshape(kept, [-1, self._attn_length, self._attn_size])
        inputs = linear([inputs, attention], self._input_size or inputs.shape.as_list()[1])
        cell_output, state = self._cell(inputs, state)
        query = tf.concat(tf.nest.flatten(state), 1) if self._state_is_tuple else state
        attention = self._attend(query, kept)
        with tf.variable_scope("attn_output_projection"):
            output = linear([cell_output, attention], self._attn_size)
        kept = tf.reshape(
            tf.concat([kept[:, 1:], tf.expand_dims(output, 1)], 1), [-1, self._attn_length * self._attn_size]
        )
        state = (state, attention, kept)
        return output, state if self._state_is_tuple else tf.concat(state, 1)

    def _attend(self, query, kept):
        with tf.variable_scope("attention"):
            key = tf.get_variable("attn_w", [1, 1, self._attn_size, self._attn_vec_size])
            v = tf.get_variable("attn_v", [self._attn_vec_size])
            hidden = tf.reshape(kept, [-1, self._attn_length, 1, self._attn_size])
            query = tf.reshape(linear(query, self._attn_vec_size), [-1, 1, 1, self._attn_vec_size])
            score = tf.reduce_sum(v * tf.tanh(tf.nn.conv2d(hidden, key, [1, 1, 1, 1], "SAME") + query), [2, 3])
            weights = tf.reshape(tf.nn.softmax(score), [-1, self._attn_length, 1, 1])
            return tf.reshape(tf.reduce_sum(weights * hidden, [1, 2]), [-1, self._attn_size])
