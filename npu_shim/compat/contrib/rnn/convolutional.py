"""Convolutional LSTM (Shi et al. 2015) of tf.contrib.rnn."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LSTMStateTuple


class ConvLSTMCell(Cell):
    """LSTM whose maps are convolutions.

    Args:
        conv_ndims: 1, 2 or 3.
        input_shape: list of int, sizes and channels of the inputs without the batch.
        output_channels: int.
        kernel_shape: list of int.
        use_bias: bool.
        skip_connection: whether the inputs are concatenated to the output.
        forget_bias: float.
        initializers: unused, as in the original.
        name: of the layer; variables are "kernel" and "biases".

    Raises:
        ValueError: `input_shape` does not fit `conv_ndims`.
    """

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Any = None,
        name: str = "conv_lstm_cell",
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise ValueError("Invalid input_shape %s for conv_ndims=%s." % (input_shape, conv_ndims))
        self._conv_ndims = conv_ndims
        self._output_channels = output_channels
        self._kernel_shape = list(kernel_shape)
        self._use_bias = use_bias
        self._skip_connection = skip_connection
        self._forget_bias = forget_bias
        size = tf.TensorShape([*input_shape[:-1], output_channels])
        self._state_size = LSTMStateTuple(size, size)
        skipped = input_shape[-1] if skip_connection else 0
        self._output_size = tf.TensorShape([*input_shape[:-1], output_channels + skipped])

    def call(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Returns (output, LSTMStateTuple(cell, output))."""
        cell, hidden = state
        gates = _conv([inputs, hidden], self._kernel_shape, 4 * self._output_channels, self._use_bias)
        i, j, f, o = tf.split(gates, 4, self._conv_ndims + 1)
        cell = tf.sigmoid(f + self._forget_bias) * cell + tf.sigmoid(i) * tf.tanh(j)
        output = tf.tanh(cell) * tf.sigmoid(o)
        if self._skip_connection:
            output = tf.concat([output, inputs], -1)
        return output, LSTMStateTuple(cell, output)


class Conv1DLSTMCell(ConvLSTMCell):
    """ConvLSTMCell with one dimension."""

    def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
    """ConvLSTMCell with two dimensions."""

    def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
    """ConvLSTMCell with three dimensions."""

    def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=3, name=name, **kwargs)


def _conv(args, filter_size, num_features, bias, bias_start=0.0):
    """A convolution of tensors [batch, ..., depth], joined by their depths, with "kernel" and "biases" of the scope."""
    if {len(x.shape) for x in args} not in ({3}, {4}, {5}):
        raise ValueError("Conv Linear expects 3D, 4D or 5D arguments of one rank: %s" % [x.shape for x in args])
    x = tf.concat(args, -1)
    kernel = tf.get_variable("kernel", [*filter_size, x.shape.as_list()[-1], num_features], x.dtype)
    convolved = tf.nn.convolution(x, kernel, "SAME")
    if not bias:
        return convolved
    return convolved + tf.get_variable("biases", [num_features], x.dtype, tf.constant_initializer(bias_start))
