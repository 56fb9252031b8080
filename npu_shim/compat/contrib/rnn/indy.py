"""Cells whose units see only their own past (Li et al. 2018), and LSTM in groups (Kuchaiev and Ginsburg 2017)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LayerCell, LSTMStateTuple, input_depth, linear


class _IndyCell(LayerCell):
    """The base of the three; None as `kernel_initializer` or `bias_initializer` means the default.

    Args:
        num_units: int.
        activation: tanh by default.
        reuse: whether the variables exist.
        kernel_initializer: of the inputs' kernel.
        bias_initializer: of the bias.
        name: of the layer.
        dtype: of the layer.
    """

    def __init__(
        self, num_units, activation=None, reuse=None, kernel_initializer=None, bias_initializer=None, name=None,
        dtype=None,
    ):  # fmt: skip
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units = num_units
        self._activation = activation or tf.tanh
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    def _weights(self, inputs_shape, gates, names, bias_start):
        """(kernel of the inputs, one weight per unit for the state, bias) for a number of gates."""
        wide = gates * self._num_units
        start = self._bias_initializer if self._bias_initializer is not None else bias_start
        return (
            self.add_weight(names[0], shape=[input_depth(inputs_shape), wide], initializer=self._kernel_initializer),
            self.add_weight(names[1], shape=[1, wide], initializer=tf.random_uniform_initializer(-1, 1)),
            self.add_weight(names[2], shape=[wide], initializer=start),
        )


class IndRNNCell(_IndyCell):
    """Output = state = activation(W x + u * state + b); arguments as in the original."""

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_units, activation, reuse, name=name, dtype=dtype)

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        self._w = self._weights(inputs_shape, 1, ("kernel_w", "kernel_u", "bias"), tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, state)."""
        output = self._activation(_gates(inputs, state, self._w, 1))
        return output, output


class IndyGRUCell(_IndyCell):
    """GRU with one recurrent weight per unit."""

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        gates = ("gates/kernel_w", "gates/kernel_u", "gates/bias")
        candidate = ("candidate/kernel", "candidate/kernel_u", "candidate/bias")
        self._gates = self._weights(inputs_shape, 2, gates, tf.ones_initializer())
        self._candidate = self._weights(inputs_shape, 1, candidate, tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, h)."""
        r, u = tf.split(tf.sigmoid(_gates(inputs, state, self._gates, 2)), 2, 1)
        c = self._activation(_gates(inputs, r * state, self._candidate, 1))
        h = u * state + (1 - u) * c
        return h, h


class IndyLSTMCell(_IndyCell):
    """LSTM with one recurrent weight per unit; `forget_bias` is added to the forget gate."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        activation: Any = None,
        reuse: bool | None = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse, kernel_initializer, bias_initializer, name, dtype)
        self._forget_bias = forget_bias

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        self._w = self._weights(inputs_shape, 4, ("kernel_w", "kernel_u", "bias"), tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        c, h = state
        i, j, f, o = tf.split(_gates(inputs, h, self._w, 4), 4, 1)
        c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * self._activation(j)
        h = self._activation(c) * tf.sigmoid(o)
        return h, LSTMStateTuple(c, h)


def _gates(inputs, state, weights, count):
    kernel, recurrent, bias = weights
    return tf.nn.bias_add(tf.matmul(inputs, kernel) + tf.tile(state, [1, count]) * recurrent, bias)


class GLSTMCell(Cell):
    """LSTM whose units and inputs are split into independent groups.

    Args:
        num_units: int, a multiple of the groups.
        initializer: of the kernels.
        num_proj: int, or None for no projection.
        number_of_groups: int.
        forget_bias: float.
        activation: of the state.
        reuse: whether the variables exist.

    Raises:
        ValueError: a size is no multiple of the groups.
    """

    def __init__(
        self,
        num_units: int,
        initializer: Any = None,
        num_proj: int | None = None,
        number_of_groups: int = 1,
        forget_bias: float = 1.0,
        activation: Any = tf.tanh,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        for name, size in (("num_units", num_units), ("num_proj", num_proj or 0)):
            if size % number_of_groups:
                raise ValueError("%s must be divisible by number_of_groups" % name)
        self._num_units = num_units
        self._initializer = initializer
        self._num_proj = num_proj
        self._forget_bias = forget_bias
        self._activation = activation
        self._groups = number_of_groups
        self._output_size = num_proj or num_units
        self._state_size = LSTMStateTuple(num_units, self._output_size)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (m, LSTMStateTuple(c, m))."""
        c, m = state
        if input_depth(inputs.shape) % self._groups:
            raise ValueError(
                "input size (%d) must be divisible by number_of_groups (%d)" % (inputs.shape[1], self._groups)
            )
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            parts = []
            for group, seen in enumerate(zip(tf.split(inputs, self._groups, 1), tf.split(m, self._groups, 1))):
                with tf.variable_scope("group%d" % group):
                    parts.append(tf.split(linear(list(seen), 4 * self._num_units // self._groups, bias=False), 4, 1))
            i, j, f, o = (
                tf.nn.bias_add(tf.concat(gate, 1), self._bias("bias_" + name, inputs.dtype))
                for name, gate in zip("ijfo", zip(*parts))
            )
            c = tf.sigmoid(f + self._forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
            m = tf.sigmoid(o) * self._activation(c)
            if self._num_proj is not None:
                with tf.variable_scope("projection"):
                    m = linear(m, self._num_proj, bias=False)
        return m, LSTMStateTuple(c, m)

    def _bias(self, name, dtype):
        return tf.get_variable(name, [self._num_units], dtype, tf.zeros_initializer())
