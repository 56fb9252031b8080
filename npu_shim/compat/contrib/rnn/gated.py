"""Cells of tf.contrib.rnn with few gates: MinimalRNN and CFN; equations and variable names are those of 1.15.5."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import LayerCell, input_depth


class _GatedCell(LayerCell):
    """The base of both.

    Args:
        units: int.
        activation: of the projected inputs, a function or its name.
        kernel_initializer: of the matrices.
        bias_initializer: of the gates' bias.
        name: of the layer.
        dtype: of the layer.
        **kwargs: of the layer.
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "ones",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, **kwargs)
        self._num_units = units
        self._activation = tf.keras.activations.get(activation)
        self._initializers = (
            tf.keras.initializers.get(kernel_initializer), tf.keras.initializers.get(bias_initializer),
        )  # fmt: skip

    def _weights(self, name, rows, columns):
        return self.add_weight(name, shape=[rows, columns * self._num_units], initializer=self._initializers[0])

    def _gate_bias(self, columns):
        return self.add_weight("bias", shape=[columns * self._num_units], initializer=self._initializers[1])


class MinimalRNNCell(_GatedCell):
    """z = activation(W x), u = sigmoid(V z + U h + b), output = state = u h + (1 - u) z (Chen et al. 2018)."""

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables; W, V and U are one kernel."""
        self._kernel = self._weights("kernel", input_depth(inputs_shape) + 2 * self._num_units, 1)
        self._bias = self._gate_bias(1)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, state)."""
        of_x, of_zh = tf.split(self._kernel, [input_depth(inputs.shape), 2 * self._num_units], 0)
        z = self._activation(tf.matmul(inputs, of_x))
        u = tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([z, state], 1), of_zh), self._bias))
        output = u * state + (1 - u) * z
        return output, output


class CFNCell(_GatedCell):
    """f, i = sigmoid(U h + V x + b), output = state = f activation(h) + (1 - i) activation(W x) (Laurent 2017)."""

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables; V and W are one kernel."""
        self._kernel = self._weights("kernel", input_depth(inputs_shape), 3)
        self._recurrent = self._weights("recurrent_kernel", self._num_units, 2)
        self._bias = self._gate_bias(2)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, state)."""
        of_x = tf.matmul(inputs, self._kernel)
        gates = of_x[:, : 2 * self._num_units] + tf.matmul(state, self._recurrent)
        f, i = tf.split(tf.sigmoid(tf.nn.bias_add(gates, self._bias)), 2, 1)
        new = of_x[:, 2 * self._num_units :]
        output = f * self._activation(state) + (1 - i) * self._activation(new)
        return output, output
