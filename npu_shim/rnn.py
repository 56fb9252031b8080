"""The vendor's recurrent layers: an LSTM, a GRU and a GRU with attention, unrolled by `tf.scan`.

The projections of all inputs are one matrix product outside of the loop. Variables have the vendor's names.
Sources: Ascend adapter of 2023-12 (r1.15) and 2026-07, npu_dynamic_rnn and npu_rnn; CANN operator documentation
(DynamicRNN, DynamicGRUV2, DynamicAUGRU).
"""

import math

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError, nearest

UNIDIRECTIONAL, BIDIRECTIONAL = "UNIDIRECTIONAL", "BIDIRECTIONAL"

try:
    _LAYER = tf.layers.Layer
except (ImportError, AttributeError):  # TensorFlow 2.16 and later, without tf_keras
    _LAYER = object


class _DynamicBasic(_LAYER):
    """What the three layers take in common.

    Args:
        hidden_size: int, units.
        dtype: tf.float16 or tf.float32.
        direction: "UNIDIRECTIONAL"; DynamicRNN takes "BIDIRECTIONAL" too.
        cell_depth: 1.
        keep_prob: 1.0.
        cell_clip: float; above 0 it bounds the LSTM's cell state, -1.0 does not.
        num_proj: 0.
        time_major: bool; True takes and gives [time, batch, size], False [batch, time, size].
        activation: "tanh".
        is_training: bool, taken and not used: every result is always there.

    Raises:
        ConfigError: another value.
    """

    directions = (UNIDIRECTIONAL,)

    def __init__(
        self,
        hidden_size,
        dtype,
        direction=UNIDIRECTIONAL,
        cell_depth=1,
        keep_prob=1.0,
        cell_clip=-1.0,
        num_proj=0,
        time_major=True,
        activation="tanh",
        is_training=True,
    ):
        name = type(self).__name__
        if _LAYER is object:
            raise ImportError("npu_shim: %s needs tf.layers, which TensorFlow %s lacks" % (name, tf.__version__))
        super().__init__(dtype=dtype)
        _require(name, "direction", direction, self.directions)
        _require(name, "cell_depth", cell_depth, (1,))
        _require(name, "keep_prob", keep_prob, (1.0,))
        _require(name, "num_proj", num_proj, (0, None))
        _require(name, "activation", activation, ("tanh",))
        self.hidden_size, self.direction, self.cell_depth = hidden_size, direction, cell_depth
        self.keep_prob, self.cell_clip, self.num_proj = keep_prob, cell_clip, num_proj
        self.time_major, self.activation, self.is_training = time_major, activation, is_training

    def _along_time(self, tensors):
        """Turns [batch, time, ...] into [time, batch, ...] and back, where the layer is not time-major."""
        if self.time_major:
            return tensors
        return [tf.transpose(each, [1, 0, *range(2, each.shape.rank)]) for each in tensors]

    def _state(self, given, x):
        """Returns a beginning state as [batch, hidden_size]."""
        if given is None:
            return tf.zeros([tf.shape(x)[1], self.hidden_size], x.dtype)
        return tf.reshape(tf.cast(given, x.dtype), [-1, self.hidden_size])


class DynamicRNN(_DynamicBasic):
    """An LSTM layer with gates in the order i, j, f, o, weights [inputs + units, 4 units].

    `layer(x, seq_length=None, init_h=None, init_c=None, weight=None, bias=None)` returns the eight sequences y, h, c,
    i, j, f, o, tanh(c), each [time, batch, units], both directions stacked in front if there are two. Past a sequence's
    length y is 0 and the state stays.

    Args are those of `_DynamicBasic`, and: cell_type "LSTM", use_peephole False, forget_bias float.
    """

    directions = (UNIDIRECTIONAL, BIDIRECTIONAL)

    def __init__(
        self,
        hidden_size,
        dtype,
        cell_type="LSTM",
        direction=UNIDIRECTIONAL,
        cell_depth=1,
        use_peephole=False,
        keep_prob=1.0,
        cell_clip=-1.0,
        num_proj=0,
        time_major=True,
        activation="tanh",
        forget_bias=0.0,
        is_training=True,
    ):
        super().__init__(
            hidden_size,
            dtype,
            direction,
            cell_depth,
            keep_prob,
            cell_clip,
            num_proj,
            time_major,
            activation,
            is_training,
        )
        _require("DynamicRNN", "cell_type", cell_type, ("LSTM",))
        _require("DynamicRNN", "use_peephole", use_peephole, (False,))
        self.cell_type, self.use_peephole, self.forget_bias = cell_type, use_peephole, forget_bias

    def build(self, input_shape):
        """Makes dynamicrnn/w and dynamicrnn/b."""
        rows, columns = _size(input_shape) + self.hidden_size, 4 * self.hidden_size
        both = [2] if self.direction == BIDIRECTIONAL else []
        glorot = tf.glorot_uniform_initializer(seed=10, dtype=self.dtype)
        self.w = self.add_weight("dynamicrnn/w", [*both, rows, columns], self.dtype, glorot)
        self.b = self.add_weight("dynamicrnn/b", [*both, columns], self.dtype, tf.zeros_initializer())
        super().build(input_shape)

    def call(self, x, seq_length=None, init_h=None, init_c=None, weight=None, bias=None):
        """Returns the eight sequences, see the class.

        Args:
            x: Tensor [time, batch, inputs].
            seq_length: int32 [batch], or a mask [time, batch, units] of zeros and ones; None takes all steps.
            init_h: Tensor [1, batch, units] or [batch, units]; None is 0. [2, batch, units] for two directions.
            init_c: likewise.
            weight: Tensor in place of the layer's own variable.
            bias: likewise.
        """
        (x,) = self._along_time([x])
        w, b = self.w if weight is None else weight, self.b if bias is None else bias
        mask = _mask(seq_length, x, self.hidden_size)
        if self.direction == UNIDIRECTIONAL:
            return self._along_time(self._one_way(x, mask, self._state(init_h, x), self._state(init_c, x), w, b))
        starts = [(None, None) if each is None else tf.unstack(each, 2) for each in (init_h, init_c)]
        (h0, h1), (c0, c1) = starts
        ahead = self._one_way(x, mask, self._state(h0, x), self._state(c0, x), w[0], b[0])
        turned = None if mask is None else mask[::-1]
        back = self._one_way(x[::-1], turned, self._state(h1, x), self._state(c1, x), w[1], b[1])
        return [tf.stack(self._along_time([one, other[::-1]])) for one, other in zip(ahead, back)]

    def _one_way(self, x, mask, h, c, w, b):
        inputs = x.shape[-1]
        gates = tf.tensordot(x, w[:inputs], 1) + b

        def step(before, now):
            h, c = before[:2]
            i, j, f, o = tf.split(now[0] + tf.matmul(h, w[inputs:]), 4, axis=-1)
            i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + self.forget_bias), tf.sigmoid(o)
            new_c = f * c + i * j
            if self.cell_clip > 0:
                new_c = tf.clip_by_value(new_c, -self.cell_clip, self.cell_clip)
            tanhc = tf.tanh(new_c)
            return (_kept(now, o * tanhc, h), _kept(now, new_c, c), i, j, f, o, tanhc)

        hs, cs, *rest = tf.scan(step, _with(gates, mask), (h, c) + (tf.zeros_like(h),) * 5)
        y = hs if mask is None else tf.where(mask, hs, tf.zeros_like(hs))
        return [y, hs, cs, *rest]


class _GatedUnit(_DynamicBasic):
    """What the two GRU layers have in common: gates in `gate_order` ("zrh" or "rzh"), two weights, two biases."""

    prefix = ""

    def __init__(
        self,
        hidden_size,
        dtype,
        direction=UNIDIRECTIONAL,
        cell_depth=1,
        keep_prob=1.0,
        cell_clip=-1.0,
        num_proj=0,
        time_major=True,
        activation="tanh",
        gate_order="zrh",
        reset_after=True,
        is_training=True,
    ):
        super().__init__(
            hidden_size,
            dtype,
            direction,
            cell_depth,
            keep_prob,
            cell_clip,
            num_proj,
            time_major,
            activation,
            is_training,
        )
        _require(type(self).__name__, "gate_order", gate_order, ("zrh", "rzh"))
        self.gate_order, self.reset_after = gate_order, reset_after

    def build(self, input_shape):
        """Makes the variables weight_input, weight_hidden, bias_input and bias_hidden."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        shapes = {
            "weight_input": [_size(input_shape), 3 * self.hidden_size],
            "weight_hidden": [self.hidden_size, 3 * self.hidden_size],
            "bias_input": [3 * self.hidden_size],
            "bias_hidden": [3 * self.hidden_size],
        }
        for name, shape in shapes.items():
            uniform = tf.random_uniform_initializer(-bound, bound, dtype=self.dtype)
            setattr(self, name, self.add_weight(self.prefix + "/" + name, shape, self.dtype, uniform))
        super().build(input_shape)

    def _gates(self, x_gates, h):
        """Returns (update, reset, new, hidden part of new) of one step."""
        h_gates = tf.matmul(h, self.weight_hidden) + self.bias_hidden
        first_x, second_x, new_x = tf.split(x_gates, 3, axis=-1)
        first_h, second_h, new_h = tf.split(h_gates, 3, axis=-1)
        first, second = tf.sigmoid(first_x + first_h), tf.sigmoid(second_x + second_h)
        update, reset = (first, second) if self.gate_order == "zrh" else (second, first)
        if not self.reset_after:
            columns = 2 * self.hidden_size
            new_h = tf.matmul(reset * h, self.weight_hidden[:, columns:]) + self.bias_hidden[columns:]
            return update, reset, tf.tanh(new_x + new_h), new_h
        return update, reset, tf.tanh(new_x + reset * new_h), new_h

    def _unroll(self, x, seq_length, init_h, attention=None):
        mask = _mask(seq_length, x, self.hidden_size)
        h = self._state(init_h, x)
        x_gates = tf.tensordot(x, self.weight_input, 1) + self.bias_input

        def step(before, now):
            h = before[0]
            update, reset, new, hidden_new = self._gates(now[0], h)
            scaled = update if attention is None else (1.0 - now[-1]) * update
            after = _kept(now, new + scaled * (h - new), h)
            weakened = [] if attention is None else [scaled]
            return (after, update, *weakened, reset, new, hidden_new)

        sequences = _with(x_gates, mask)
        if attention is not None:
            sequences += (tf.cast(attention, x.dtype)[..., tf.newaxis],)
        hs, *rest = tf.scan(step, sequences, (h,) + (tf.zeros_like(h),) * (4 if attention is None else 5))
        return [hs, hs, *rest]


class DynamicGRUV2(_GatedUnit):
    """A GRU layer: h' = (1 - z) n + z h.

    `layer(x, seq_length=None, init_h=None)` returns the six sequences y, h, z (update), r (reset), n (new) and n's part
    from h, each [time, batch, units]. `reset_after` applies r after the product with the weights (n = tanh(x W + r (h U
    + b))), else before it. Past a sequence's length y and h stay.
    """

    prefix = "dynamicgruv2"

    def call(self, x, seq_length=None, init_h=None):
        """Returns the six sequences, see the class and DynamicRNN."""
        (x,) = self._along_time([x])
        return self._along_time(self._unroll(x, seq_length, init_h))


class DynamicAUGRU(_GatedUnit):
    """A GRU layer whose update gate is weakened by attention: z' = (1 - attention) z, h' = (1 - z') n + z' h.

    `layer(x, weight_att, seq_length=None, init_h=None)`, weight_att [time, batch], returns the seven sequences y, h, z,
    z', r, n and n's part from h.
    """

    prefix = "dynamicaugru"

    def call(self, x, weight_att, seq_length=None, init_h=None):
        """Returns the seven sequences, see the class and DynamicRNN."""
        x, attention = self._along_time([x, tf.convert_to_tensor(weight_att)])
        return self._along_time(self._unroll(x, seq_length, init_h, attention))


def basic_lstm_cell(x, h, c, w, b, keep_prob, forget_bias, state_is_tuple, activation, name=None):
    """Returns (c, h, i, j, f, o, tanh(c)) after one step of an LSTM with gates in the order i, j, f, o.

    Args:
        x: Tensor [batch, inputs].
        h: Tensor [batch, units].
        c: Tensor [batch, units].
        w: Tensor [inputs + units, 4 units].
        b: Tensor [4 units].
        keep_prob: 1.0.
        forget_bias: float.
        state_is_tuple: taken and not used.
        activation: "tanh".
        name: str or None.

    Raises:
        ConfigError: another keep_prob or activation.
    """
    _require("basic_lstm_cell", "keep_prob", keep_prob, (1.0,))
    _require("basic_lstm_cell", "activation", activation, ("tanh",))
    with tf.name_scope(name, "basic_lstm_cell", [x, h, c, w, b]):
        gates = tf.matmul(tf.concat([x, h], 1), w) + b
        i, j, f, o = tf.split(gates, 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + forget_bias), tf.sigmoid(o)
        c = f * c + i * j
        tanhc = tf.tanh(c)
        return c, o * tanhc, i, j, f, o, tanhc


def npu_dynamic_rnn(cell, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
    """Returns (outputs, last state) of an RNN cell over time-major inputs [time, batch, size], see tf.nn.static_rnn."""
    return tf.nn.dynamic_rnn(
        cell,
        inputs,
        sequence_length=sequence_length,
        initial_state=initial_state,
        dtype=dtype,
        time_major=True,
        scope=scope,
    )


def _require(owner, name, value, accepted):
    if value not in accepted:
        words = (owner, name, " or ".join(repr(each) for each in accepted), value, nearest(value, map(str, accepted)))
        raise ConfigError("%s: %s must be %s, got %r%s" % words)


def _size(input_shape):
    size = tf.TensorShape(input_shape).as_list()[-1]
    if size is None:
        raise ConfigError("the last axis of the input must be known, got shape %s" % input_shape)
    return size


def _mask(seq_length, x, units):
    """Returns which steps count, bool [time, batch, units], or None for all."""
    if seq_length is None:
        return None
    given = tf.convert_to_tensor(seq_length)
    if given.shape.rank == 3:
        return given > 0
    within = tf.transpose(tf.sequence_mask(given, tf.shape(x)[0]))[..., tf.newaxis]
    return tf.tile(within, [1, 1, units])


def _with(gates, mask):
    return (gates,) if mask is None else (gates, mask)


def _kept(now, new, before):
    # the mask is the second sequence, and the only one of type bool
    masked = len(now) > 1 and now[1].dtype == tf.bool
    return tf.where(now[1], new, before) if masked else new
