"""The cells of tf.contrib.rnn beyond tf.nn.rnn_cell; equations and variable names are those of TensorFlow 1.15.5."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LayerCell, LSTMStateTuple, input_depth, linear


class NASCell(LayerCell):
    """The recurrent cell found by architecture search (Zoph and Le 2017).

    Args:
        num_units: int.
        num_proj: int, or None for no projection.
        use_bias: bool.
        reuse: whether the variables exist.
        **kwargs: of the layer.
    """

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units = num_units
        self._num_proj = num_proj
        self._use_bias = use_bias

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> Any:
        return self._num_proj if self._num_proj is not None else self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        wide = 8 * self._num_units
        self.recurrent_kernel = self.add_weight("recurrent_kernel", shape=[self.output_size, wide])
        self.kernel = self.add_weight("kernel", shape=[input_depth(inputs_shape), wide])
        if self._use_bias:
            self.bias = self.add_weight("bias", shape=[wide], initializer=tf.zeros_initializer())
        if self._num_proj is not None:
            self.projection_weights = self.add_weight("projection_weights", shape=[self._num_units, self._num_proj])
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (m, LSTMStateTuple(c, m)); the tree is that of the paper's figure."""
        c, m = state
        m = tf.matmul(m, self.recurrent_kernel)
        if self._use_bias:
            m = tf.nn.bias_add(m, self.bias)
        ms, xs = tf.split(m, 8, 1), tf.split(tf.matmul(inputs, self.kernel), 8, 1)
        leaves = [tf.sigmoid, tf.nn.relu, tf.sigmoid, tf.nn.relu, tf.tanh, tf.sigmoid, tf.tanh, tf.sigmoid]
        joined = [x * h if index == 3 else x + h for index, (x, h) in enumerate(zip(xs, ms))]
        a, b, d, e, f, g, h, i = (leaf(x) for leaf, x in zip(leaves, joined))
        c = tf.tanh(tf.tanh(a * b) + c) * tf.tanh(d + e)
        m = tf.tanh(c * tf.tanh(tf.tanh(f * g) + tf.sigmoid(h + i)))
        if self._num_proj is not None:
            m = tf.matmul(m, self.projection_weights)
        return m, LSTMStateTuple(c, m)


class UGRNNCell(Cell):
    """Update gate RNN (Collins et al. 2017): one gate decides what is carried on.

    Args:
        num_units: int.
        initializer: of the kernel.
        forget_bias: float.
        activation: of the candidate.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        initializer: Any = None,
        forget_bias: float = 1.0,
        activation: Any = tf.tanh,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units = self._state_size = self._output_size = num_units
        self._initializer = initializer
        self._forget_bias = forget_bias
        self._activation = activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (state, state): g * state + (1 - g) * c."""
        input_depth(inputs.shape)
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            g, c = tf.split(linear([inputs, state], 2 * self._num_units), 2, 1)
        g = tf.sigmoid(g + self._forget_bias)
        new = g * state + (1.0 - g) * self._activation(c)
        return new, new


class IntersectionRNNCell(Cell):
    """The +RNN (Collins et al. 2017): gated through time and through depth.

    Args:
        num_units: int.
        num_in_proj: int, the depth to which the inputs are projected if theirs is not `num_units`.
        initializer: of the kernels.
        forget_bias: float.
        y_activation: of the output's candidate.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        num_in_proj: int | None = None,
        initializer: Any = None,
        forget_bias: float = 1.0,
        y_activation: Any = tf.nn.relu,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units = self._state_size = self._output_size = num_units
        self._initializer = initializer
        self._forget_bias = forget_bias
        self._num_input_proj = num_in_proj
        self._y_activation = y_activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (y, state)."""
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            if input_depth(inputs.shape) != self._num_units:
                if not self._num_input_proj:
                    raise ValueError(
                        "IntersectionRNNCell needs inputs as deep as its output; set num_in_proj to num_units"
                    )
                with tf.variable_scope("in_projection"):
                    inputs = linear(inputs, self._num_units)
            gh, h, gy, y = tf.split(linear([inputs, state], 4 * self._num_units), 4, 1)
        gh, gy = tf.sigmoid(gh + self._forget_bias), tf.sigmoid(gy + self._forget_bias)
        return gy * inputs + (1.0 - gy) * self._y_activation(y), gh * state + (1.0 - gh) * tf.tanh(h)


class SRUCell(LayerCell):
    """Simple recurrent unit (Lei et al. 2017).

    Args:
        num_units: int, also the depth of the inputs.
        activation: of the state, tanh by default.
        reuse: whether the variables exist.
        name: of the layer.
        **kwargs: of the layer.
    """

    def __init__(
        self, num_units: int, activation: Any = None, reuse: bool | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(_reuse=reuse, name=name, **kwargs)
        self._num_units = num_units
        self._activation = activation or tf.tanh

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        self._kernel = self.add_weight("kernel", shape=[input_depth(inputs_shape), 4 * self._num_units])
        self._bias = self.add_weight("bias", shape=[2 * self._num_units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, c)."""
        x, f, r, skip = tf.split(tf.matmul(inputs, self._kernel), 4, 1)
        f, r = tf.split(tf.sigmoid(tf.nn.bias_add(tf.concat([f, r], 1), self._bias)), 2, 1)
        c = f * state + (1.0 - f) * x
        return r * self._activation(c) + (1.0 - r) * skip, c
