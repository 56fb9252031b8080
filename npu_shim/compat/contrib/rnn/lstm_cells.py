"""The variants of LSTM in tf.contrib.rnn; equations and variable names are those of TensorFlow 1.15.5."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LSTMStateTuple, input_depth, layer_norm, linear, sharded


class LayerNormBasicLSTMCell(Cell):
    """LSTM with layer normalization of its gates and state (Ba et al. 2016) and recurrent dropout (Semeniuta 2016).

    Args:
        num_units: int.
        forget_bias: float.
        input_size: unused.
        activation: of candidate and state.
        layer_norm: whether to normalize; a bias is learned otherwise.
        norm_gain: initial gain.
        norm_shift: initial shift.
        dropout_keep_prob: float or tensor, for the candidate.
        dropout_prob_seed: int.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: int | None = None,
        activation: Any = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._activation = activation
        self._forget_bias = forget_bias
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed
        self._layer_norm = layer_norm
        self._norm_gain = norm_gain
        self._norm_shift = norm_shift
        self._state_size = LSTMStateTuple(num_units, num_units)
        self._output_size = num_units

    def _norm(self, x, scope):
        return layer_norm(x, scope, self._norm_gain, self._norm_shift) if self._layer_norm else x

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        c, h = state
        gates = linear([inputs, h], 4 * self._num_units, not self._layer_norm, _default_initializer())
        i, j, f, o = tf.split(gates, 4, 1)
        i, j, f, o = (self._norm(x, s) for x, s in zip((i, j, f, o), ("input", "transform", "forget", "output")))
        g = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            g = tf.nn.dropout(g, self._keep_prob, seed=self._seed)
        c = self._norm(c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * g, "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, LSTMStateTuple(c, h)


def _default_initializer():
    """The initializer that get_variable takes when it is given none."""
    return tf.get_variable_scope().initializer or tf.glorot_uniform_initializer()


class CoupledInputForgetGateLSTMCell(Cell):
    """LSTM whose input gate is 1 - forget gate (Greff et al. 2015), with peepholes and projection on request.

    Args:
        num_units: int.
        use_peepholes: bool.
        initializer: unused, as in the original.
        num_proj: int, or None for no projection.
        proj_clip: float, or None.
        num_unit_shards: int, the number of variables into which the kernel is split.
        num_proj_shards: int, the same for the projection.
        forget_bias: float.
        state_is_tuple: bool.
        activation: of candidate and state.
        reuse: whether the variables exist.
        layer_norm: bool.
        norm_gain: initial gain.
        norm_shift: initial shift.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: Any = None,
        num_unit_shards: int = 1,
        num_proj_shards: int = 1,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = tf.tanh,
        reuse: bool | None = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_unit_shards = num_unit_shards
        self._num_proj_shards = num_proj_shards
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation
        self._layer_norm = layer_norm
        self._gain_and_shift = (norm_gain, norm_shift)
        self._output_size = num_proj or num_units
        self._state_size = LSTMStateTuple(num_units, self._output_size)
        if not state_is_tuple:
            self._state_size = sum(self._state_size)

    def _norm(self, x, scope):
        return layer_norm(x, scope, *self._gain_and_shift) if self._layer_norm else x

    def _peephole(self, name, c):
        return tf.get_variable(name, [self._num_units], c.dtype) * c if self._use_peepholes else 0.0

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (m, next state): c = f * c + (1 - f) * activation(j)."""
        units = self._num_units
        c, m = state if self._state_is_tuple else tf.split(state, [units, self._output_size], 1)
        rows = input_depth(inputs.shape) + self._output_size
        kernel = sharded("W", [rows, 3 * units], inputs.dtype, self._num_unit_shards)
        bias = tf.get_variable("B", [3 * units], inputs.dtype, tf.zeros_initializer())
        gates = tf.matmul(tf.concat([inputs, m], 1), kernel)
        if not self._layer_norm:
            gates = tf.nn.bias_add(gates, bias)
        j, f, o = tf.split(gates, 3, 1)
        j, f, o = (self._norm(x, s) for x, s in zip((j, f, o), ("transform", "forget", "output")))
        f = tf.sigmoid(f + self._forget_bias + self._peephole("W_F_diag", c))
        c = self._norm(f * c + (1 - f) * self._activation(j), "state")
        m = tf.sigmoid(o + self._peephole("W_O_diag", c)) * self._activation(c)
        if self._num_proj is not None:
            m = tf.matmul(m, sharded("W_P", [units, self._num_proj], inputs.dtype, self._num_proj_shards))
            if self._proj_clip is not None:
                m = tf.clip_by_value(m, -self._proj_clip, self._proj_clip)
        return m, LSTMStateTuple(c, m) if self._state_is_tuple else tf.concat([c, m], 1)


class PhasedLSTMCell(Cell):
    """LSTM whose units open and close with a learned period (Neil et al. 2016); inputs are (time [batch, 1], x).

    Args:
        num_units: int.
        use_peepholes: bool.
        leak: float, what passes in the closed phase.
        ratio_on: float, the open part of a period.
        trainable_ratio_on: bool.
        period_init_min: float; periods start as exp of a uniform value between the logarithms of both.
        period_init_max: float.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        leak: float = 0.001,
        ratio_on: float = 0.1,
        trainable_ratio_on: bool = True,
        period_init_min: float = 1.0,
        period_init_max: float = 1000.0,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._leak = leak
        self._ratio_on = ratio_on
        self._trainable_ratio_on = trainable_ratio_on
        self._periods = (period_init_min, period_init_max)
        self._state_size = LSTMStateTuple(num_units, num_units)
        self._output_size = num_units

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        (c, h), (time, x) = state, inputs
        seen = [x, h]
        with tf.variable_scope("mask_gates"):
            gates = linear([*seen, c] if self._use_peepholes else seen, 2 * self._num_units)
        i, f = tf.split(tf.sigmoid(gates), 2, 1)
        with tf.variable_scope("new_input"):
            new_c = c * f + i * tf.tanh(linear(seen, self._num_units))
        with tf.variable_scope("output_gate"):
            o = tf.sigmoid(linear([*seen, new_c] if self._use_peepholes else seen, self._num_units))
        new_h = tf.tanh(new_c) * o
        k = self._openness(time)
        new_c, new_h = k * new_c + (1 - k) * c, k * new_h + (1 - k) * h
        return new_h, LSTMStateTuple(new_c, new_h)

    def _openness(self, time):
        units, (low, high) = [self._num_units], self._periods
        period = tf.get_variable("period", units, initializer=_exp_uniform(low, high))
        phase = tf.get_variable("phase", units, initializer=_below(period))
        ratio = tf.get_variable(
            "ratio_on", units, initializer=tf.constant_initializer(self._ratio_on), trainable=self._trainable_ratio_on
        )
        shifted, length = time - tf.cast(phase, time.dtype), tf.cast(period, time.dtype)
        # the remainder's gradient is that of the dividend
        cycle = (tf.stop_gradient(tf.mod(shifted, length) - shifted) + shifted) / length
        cycle = tf.cast(cycle, tf.float32)
        rising = 2 * cycle / ratio
        k = tf.where(cycle < ratio, 2 - rising, self._leak * cycle)
        return tf.where(cycle < 0.5 * ratio, rising, k)


def _exp_uniform(low, high):
    uniform = tf.random_uniform_initializer(math.log(low), math.log(high))
    return lambda shape, dtype=tf.float32, partition_info=None: tf.exp(uniform(shape, dtype=dtype))


def _below(period):
    return lambda shape, dtype=tf.float32, partition_info=None: tf.random_uniform(
        shape, 0.0, period.initial_value, dtype=dtype
    )
