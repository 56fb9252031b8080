"""LSTM with normalized weights or layers (tf.contrib.rnn); equations and variable names are those of 1.15.5."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LSTMStateTuple, input_depth, layer_norm


class _NormalizedLSTMCell(Cell):
    """LSTM with peepholes, clips and a projection on request; subclasses make the gates.

    Args:
        num_units: int.
        use_peepholes: bool.
        cell_clip: float, or None for no clip of the state.
        initializer: of the variables.
        num_proj: int, or None for no projection.
        proj_clip: float, or None for no clip of the projection.
        forget_bias: float.
        activation: of candidate and state, tanh by default.
        reuse: whether the variables exist.
    """

    def __init__(
        self, num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse,
        name=None,
    ):  # fmt: skip
        super().__init__(_reuse=reuse, name=name)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._forget_bias = forget_bias
        self._activation = activation or tf.tanh
        self._output_size = num_proj or num_units
        self._state_size = LSTMStateTuple(num_units, self._output_size)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        c, h = state
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            i, j, f, o = self._gates([inputs, h])
            f, i = f + self._forget_bias + self._peephole("f", c), i + self._peephole("i", c)
            c = self._normed(tf.sigmoid(f) * c + tf.sigmoid(i) * self._activation(j), "state")
            if self._cell_clip is not None:
                c = tf.clip_by_value(c, -self._cell_clip, self._cell_clip)
            h = tf.sigmoid(o + self._peephole("o", c)) * self._activation(c)
            if self._num_proj is not None:
                with tf.variable_scope("projection"):
                    h = tf.matmul(h, self._kernel([h], self._num_proj))
                if self._proj_clip is not None:
                    h = tf.clip_by_value(h, -self._proj_clip, self._proj_clip)
        return h, LSTMStateTuple(c, h)

    def _gates(self, args):
        """The four gates before their activations: input, candidate, forget, output."""
        gates, bias = self._products(args)
        return tf.split(tf.nn.bias_add(gates, bias), 4, 1)

    def _products(self, args):
        gates = tf.matmul(tf.concat(args, 1), self._kernel(args, 4 * self._num_units))
        return gates, tf.get_variable("bias", [4 * self._num_units], gates.dtype, tf.zeros_initializer())

    def _kernel(self, args, wide):
        rows = sum(input_depth(arg.shape) for arg in args)
        return tf.get_variable("kernel", [rows, wide], args[0].dtype)

    def _normed(self, x, scope):
        return x

    def _peephole(self, gate, c):
        return tf.get_variable("w_%s_diag" % gate, [self._num_units], c.dtype) * c if self._use_peepholes else 0.0


class LayerNormLSTMCell(_NormalizedLSTMCell):
    """LSTM whose gates and state are normalized (Ba et al. 2016).

    Args:
        num_units: int.
        use_peepholes: bool.
        cell_clip: float, or None.
        initializer: of the variables.
        num_proj: int, or None.
        proj_clip: float, or None.
        forget_bias: float.
        activation: of candidate and state, tanh by default.
        layer_norm: whether to normalize; a bias is learned otherwise.
        norm_gain: initial gain.
        norm_shift: initial shift.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: Any = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: Any = None,
        forget_bias: float = 1.0,
        activation: Any = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse
        )
        self._layer_norm = layer_norm
        self._gain_and_shift = (norm_gain, norm_shift)

    def _normed(self, x, scope):
        return layer_norm(x, scope, *self._gain_and_shift) if self._layer_norm else x

    def _gates(self, args):
        if not self._layer_norm:
            return super()._gates(args)
        gates, _ = self._products(args)  # checkpoints of 1.15 have the bias
        scopes = ("input", "transform", "forget", "output")
        return [self._normed(x, scope) for x, scope in zip(tf.split(gates, 4, 1), scopes)]


class WeightNormLSTMCell(_NormalizedLSTMCell):
    """LSTM whose weights are direction times length, w = g v / |v| (Salimans and Kingma 2016).

    Args:
        num_units: int.
        norm: whether to normalize.
        use_peepholes: bool.
        cell_clip: float, or None.
        initializer: of the variables.
        num_proj: int, or None.
        proj_clip: float, or None.
        forget_bias: float.
        activation: of candidate and state, tanh by default.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        norm: bool = True,
        use_peepholes: bool = False,
        cell_clip: Any = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: Any = None,
        forget_bias: float = 1,
        activation: Any = None,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse,
            "wn_lstm_cell",
        )  # fmt: skip
        self._norm = norm

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        with tf.variable_scope("wn_lstm_cell"):
            return super().call(inputs, state)

    def _kernel(self, args, wide):
        kernel = super()._kernel(args, wide)
        if not self._norm:
            return kernel
        parts = tf.split(kernel, [input_depth(arg.shape) for arg in args], 0)
        lengths = [tf.get_variable("norm_%d" % number, [wide], kernel.dtype) for number in range(len(parts))]
        return tf.concat([tf.nn.l2_normalize(part, 0) * g for part, g in zip(parts, lengths)], 0)
