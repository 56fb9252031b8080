"""The cells of tf.contrib.rnn beyond tf.nn.rnn_cell; equations and variable names are those of TensorFlow 1.15.5."""

import math

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, LayerCell, LSTMStateTuple, input_depth, layer_norm, linear


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
        self, num_units, forget_bias=1.0, input_size=None, activation=tf.tanh, layer_norm=True, norm_gain=1.0,
        norm_shift=0.0, dropout_keep_prob=1.0, dropout_prob_seed=None, reuse=None,
    ):  # fmt: skip
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

    def call(self, inputs, state):
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
        self, num_units, use_peepholes=False, initializer=None, num_proj=None, proj_clip=None, num_unit_shards=1,
        num_proj_shards=1, forget_bias=1.0, state_is_tuple=True, activation=tf.tanh, reuse=None, layer_norm=False,
        norm_gain=1.0, norm_shift=0.0,
    ):  # fmt: skip
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

    def call(self, inputs, state):
        """Returns (m, next state): c = f * c + (1 - f) * activation(j)."""
        units = self._num_units
        c, m = state if self._state_is_tuple else tf.split(state, [units, self._output_size], 1)
        rows = input_depth(inputs.shape) + self._output_size
        kernel = _sharded("W", [rows, 3 * units], inputs.dtype, self._num_unit_shards)
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
            m = tf.matmul(m, _sharded("W_P", [units, self._num_proj], inputs.dtype, self._num_proj_shards))
            if self._proj_clip is not None:
                m = tf.clip_by_value(m, -self._proj_clip, self._proj_clip)
        return m, LSTMStateTuple(c, m) if self._state_is_tuple else tf.concat([c, m], 1)


def _sharded(name, shape, dtype, shards):
    """A matrix in `shards` variables, split by rows."""
    sizes = [shape[0] // shards + (index < shape[0] % shards) for index in range(shards)]
    parts = [tf.get_variable("%s_%d" % (name, i), [rows, shape[1]], dtype) for i, rows in enumerate(sizes)]
    return parts[0] if shards == 1 else tf.concat(parts, 0)


class NASCell(LayerCell):
    """The recurrent cell found by architecture search (Zoph and Le 2017).

    Args:
        num_units: int.
        num_proj: int, or None for no projection.
        use_bias: bool.
        reuse: whether the variables exist.
        **kwargs: of the layer.
    """

    def __init__(self, num_units, num_proj=None, use_bias=False, reuse=None, **kwargs):
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units = num_units
        self._num_proj = num_proj
        self._use_bias = use_bias

    @property
    def state_size(self):
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self):
        return self._num_proj if self._num_proj is not None else self._num_units

    def build(self, inputs_shape):
        """Makes the variables."""
        wide = 8 * self._num_units
        self.recurrent_kernel = self.add_weight("recurrent_kernel", shape=[self.output_size, wide])
        self.kernel = self.add_weight("kernel", shape=[input_depth(inputs_shape), wide])
        if self._use_bias:
            self.bias = self.add_weight("bias", shape=[wide], initializer=tf.zeros_initializer())
        if self._num_proj is not None:
            self.projection_weights = self.add_weight("projection_weights", shape=[self._num_units, self._num_proj])
        self.built = True

    def call(self, inputs, state):
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

    def __init__(self, num_units, initializer=None, forget_bias=1.0, activation=tf.tanh, reuse=None):
        super().__init__(_reuse=reuse)
        self._num_units = self._state_size = self._output_size = num_units
        self._initializer = initializer
        self._forget_bias = forget_bias
        self._activation = activation

    def call(self, inputs, state):
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
        self, num_units, num_in_proj=None, initializer=None, forget_bias=1.0, y_activation=tf.nn.relu, reuse=None
    ):
        super().__init__(_reuse=reuse)
        self._num_units = self._state_size = self._output_size = num_units
        self._initializer = initializer
        self._forget_bias = forget_bias
        self._num_input_proj = num_in_proj
        self._y_activation = y_activation

    def call(self, inputs, state):
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

    def __init__(self, num_units, activation=None, reuse=None, name=None, **kwargs):
        super().__init__(_reuse=reuse, name=name, **kwargs)
        self._num_units = num_units
        self._activation = activation or tf.tanh

    def build(self, inputs_shape):
        """Makes the variables."""
        self._kernel = self.add_weight("kernel", shape=[input_depth(inputs_shape), 4 * self._num_units])
        self._bias = self.add_weight("bias", shape=[2 * self._num_units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs, state):
        """Returns (h, c)."""
        x, f, r, skip = tf.split(tf.matmul(inputs, self._kernel), 4, 1)
        f, r = tf.split(tf.sigmoid(tf.nn.bias_add(tf.concat([f, r], 1), self._bias)), 2, 1)
        c = f * state + (1.0 - f) * x
        return r * self._activation(c) + (1.0 - r) * skip, c


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
        self, num_units, use_peepholes=False, leak=0.001, ratio_on=0.1, trainable_ratio_on=True, period_init_min=1.0,
        period_init_max=1000.0, reuse=None,
    ):  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._leak = leak
        self._ratio_on = ratio_on
        self._trainable_ratio_on = trainable_ratio_on
        self._periods = (period_init_min, period_init_max)
        self._state_size = LSTMStateTuple(num_units, num_units)
        self._output_size = num_units

    def call(self, inputs, state):
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
