"""The vendor's recurrent layers: an LSTM, a GRU and a GRU with attention. Variables have the vendor's names.

The LSTM is one op, TensorFlow's own BlockLSTM (float16 and float32, CPU and GPU), whose eight results are the vendor's.
XLA has no such op: where NPU_SHIM_XLA is "on" the LSTM is a loop, as the GRUs always are, for TensorFlow's GRU kernels
compute another formula. In a loop the projections of all inputs are one matrix product outside of it.
Sources: Ascend adapter of 2023-12 (r1.15) and 2026-07, npu_dynamic_rnn and npu_rnn; CANN operator documentation
(DynamicRNN, DynamicGRUV2, DynamicAUGRU).
"""

from __future__ import annotations

import math
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError, nearest

UNIDIRECTIONAL, BIDIRECTIONAL = "UNIDIRECTIONAL", "BIDIRECTIONAL"

try:
    _LAYER = tf.layers.Layer
except (ImportError, AttributeError):  # TensorFlow 2.16 and later, without tf_keras
    _LAYER = object

# argument -> the values that a layer takes; any value where it is not here
_ACCEPTED = {
    "direction": (UNIDIRECTIONAL,),
    "cell_depth": (1,),
    "keep_prob": (1.0,),
    "num_proj": (0, None),
    "activation": ("tanh",),
}
_LSTM = {
    **_ACCEPTED,
    "direction": (UNIDIRECTIONAL, BIDIRECTIONAL),
    "cell_type": ("LSTM",),
    "use_peephole": (False,),
}
_GRU = {**_ACCEPTED, "gate_order": ("zrh", "rzh")}


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

    accepted = _ACCEPTED

    def __init__(self, arguments):
        name = type(self).__name__
        if _LAYER is object:
            raise ImportError("npu_shim: %s needs tf.layers, which TensorFlow %s lacks" % (name, tf.__version__))
        given = {key: value for key, value in arguments.items() if key not in ("self", "__class__")}
        super().__init__(dtype=given.pop("dtype"))
        for argument, values in self.accepted.items():
            _require(name, argument, given[argument], values)
        for argument, value in given.items():
            setattr(self, argument, value)

    def _along_time(self, tensors):
        """Turns [batch, time, ...] into [time, batch, ...] and back, where the layer is not time-major."""
        if self.time_major:
            return tensors
        return [tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)]) for tensor in tensors]

    def _state(self, given, x):
        """Returns a beginning state as [batch, hidden_size]."""
        if given is None:
            return tf.zeros([tf.shape(x)[1], self.hidden_size], x.dtype)
        return tf.reshape(tf.cast(given, x.dtype), [-1, self.hidden_size])


class DynamicRNN(_DynamicBasic):
    """An LSTM layer with gates in the order i, j, f, o, weights [inputs + units, 4 units].

    `layer(x, seq_length=None, init_h=None, init_c=None, weight=None, bias=None)` returns the eight sequences y, h, c,
    i, j, f, o, tanh(c), each [time, batch, units], both directions stacked in front if there are two. Past a sequence's
    length y is 0 and the state stays. Gradients come from y, h and c; the gates are for looking at, as on the NPU.

    Args are those of `_DynamicBasic`, and: cell_type "LSTM", use_peephole False, forget_bias float.
    """

    accepted = _LSTM

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        cell_type: str = "LSTM",
        direction: str = UNIDIRECTIONAL,
        cell_depth: int = 1,
        use_peephole: bool = False,
        keep_prob: Any = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        forget_bias: float = 0.0,
        is_training: bool = True,
    ) -> None:
        super().__init__(locals())

    def build(self, input_shape: Any) -> None:
        """Makes dynamicrnn/w and dynamicrnn/b."""
        rows, columns = _size(input_shape) + self.hidden_size, 4 * self.hidden_size
        both = [2] if self.direction == BIDIRECTIONAL else []
        glorot = tf.glorot_uniform_initializer(seed=10, dtype=self.dtype)
        self.w = self.add_weight("dynamicrnn/w", [*both, rows, columns], self.dtype, glorot)
        self.b = self.add_weight("dynamicrnn/b", [*both, columns], self.dtype, tf.zeros_initializer())
        super().build(input_shape)

    def call(
        self,
        x: Any,
        seq_length: Any = None,
        init_h: Any = None,
        init_c: Any = None,
        weight: Any = None,
        bias: Any = None,
    ) -> Any:
        """Returns the eight sequences, see the class.

        Args:
            x: Tensor [time, batch, inputs].
            seq_length: int32 [batch], or a mask [time, batch, units] of ones up to each sequence's end and zeros after
                it; None takes all steps.
            init_h: Tensor [1, batch, units] or [batch, units]; None is 0. [2, batch, units] for two directions.
            init_c: likewise.
            weight: Tensor in place of the layer's own variable.
            bias: likewise.
        """
        (x,) = self._along_time([x])
        w, b = self.w if weight is None else weight, self.b if bias is None else bias
        lengths = _lengths(seq_length)
        if self.direction == UNIDIRECTIONAL:
            return self._along_time(self._one_way(x, lengths, self._state(init_h, x), self._state(init_c, x), w, b))
        starts = [(None, None) if state is None else tf.unstack(state, 2) for state in (init_h, init_c)]
        (h0, h1), (c0, c1) = starts
        ahead = self._one_way(x, lengths, self._state(h0, x), self._state(c0, x), w[0], b[0])
        turned = _turned(x, lengths)
        back = self._one_way(turned, lengths, self._state(h1, x), self._state(c1, x), w[1], b[1])
        return [tf.stack(self._along_time([one, _turned(other, lengths)])) for one, other in zip(ahead, back)]

    def _one_way(self, x, lengths, h, c, w, b):
        by_kernel = x.dtype in (tf.float16, tf.float32) and os.environ.get("NPU_SHIM_XLA") != "on"
        hs, cs, *rest = (self._kernel if by_kernel else self._loop)(x, lengths, h, c, w, b)
        y = hs if lengths is None else tf.where_v2(_within(lengths, x), hs, tf.zeros_like(hs))
        return [y, hs, cs, *rest]

    def _kernel(self, x, lengths, h, c, w, b):
        none = tf.zeros([self.hidden_size], x.dtype)  # the weights of the peepholes
        steps = tf.shape(x, out_type=tf.int64)[0]
        sides = {"seq_len_max": steps, "cs_prev": c, "h_prev": h, "wci": none, "wcf": none, "wco": none}
        lstm = tf.raw_ops.BlockLSTM(
            x=x, w=w, b=b, forget_bias=self.forget_bias, cell_clip=self.cell_clip, use_peephole=False, **sides
        )
        hs, cs = lstm.h, lstm.cs
        if lengths is not None:
            hs, cs = _held(h, hs, lengths), _held(c, cs, lengths)
        return [hs, cs, lstm.i, lstm.ci, lstm.f, lstm.o, lstm.co]

    def _loop(self, x, lengths, h, c, w, b):
        inputs = x.shape[-1]

        def step(states, now):
            h, c = states
            i, j, f, o = tf.split(now[0] + tf.matmul(h, w[inputs:]), 4, axis=-1)
            i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + self.forget_bias), tf.sigmoid(o)
            c = f * c + i * j
            if self.cell_clip > 0:
                c = tf.clip_by_value(c, -self.cell_clip, self.cell_clip)
            tanhc = tf.tanh(c)
            return (o * tanhc, c), (i, j, f, o, tanhc)

        return _unrolled(step, [tf.tensordot(x, w[:inputs], 1) + b], lengths, (h, c), 5)


class _GatedUnit(_DynamicBasic):
    """What the two GRU layers have in common: gates in `gate_order` ("zrh" or "rzh"), two weights, two biases."""

    accepted = _GRU
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
        super().__init__(locals())

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

    def _sequences(self, x, seq_length, init_h, attention=None):
        def step(states, now):
            (h,) = states
            update, reset, new, hidden_new = self._gates(now[0], h)
            scaled = update if attention is None else (1.0 - now[1]) * update
            weakened = [] if attention is None else [scaled]
            return (new + scaled * (h - new),), (update, *weakened, reset, new, hidden_new)

        sequences = [tf.tensordot(x, self.weight_input, 1) + self.bias_input]
        if attention is not None:
            sequences.append(tf.cast(attention, x.dtype)[..., tf.newaxis])
        results = 4 if attention is None else 5
        hs, *rest = _unrolled(step, sequences, _lengths(seq_length), (self._state(init_h, x),), results)
        return [hs, hs, *rest]


class DynamicGRUV2(_GatedUnit):
    """A GRU layer: h' = (1 - z) n + z h.

    `layer(x, seq_length=None, init_h=None)` returns the six sequences y, h, z (update), r (reset), n (new) and n's part
    from h, each [time, batch, units]. `reset_after` applies r after the product with the weights (n = tanh(x W + r (h U
    + b))), else before it. Past a sequence's length y and h stay.
    """

    prefix = "dynamicgruv2"

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None) -> Any:
        """Returns the six sequences, see the class and DynamicRNN."""
        (x,) = self._along_time([x])
        return self._along_time(self._sequences(x, seq_length, init_h))


class DynamicAUGRU(_GatedUnit):
    """A GRU layer whose update gate is weakened by attention: z' = (1 - attention) z, h' = (1 - z') n + z' h.

    `layer(x, weight_att, seq_length=None, init_h=None)`, weight_att [time, batch], returns the seven sequences y, h, z,
    z', r, n and n's part from h.
    """

    prefix = "dynamicaugru"

    def call(self, x: Any, weight_att: Any, seq_length: Any = None, init_h: Any = None) -> Any:
        """Returns the seven sequences, see the class and DynamicRNN."""
        x, attention = self._along_time([x, tf.convert_to_tensor(weight_att)])
        return self._along_time(self._sequences(x, seq_length, init_h, attention))


def basic_lstm_cell(
    x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, w: tf.Tensor, b: tf.Tensor, keep_prob: Any, forget_bias: float,
    state_is_tuple: bool, activation: str, name: str | None = None,
) -> tuple[tf.Tensor, ...]:  # fmt: skip
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


def npu_dynamic_rnn(
    cell: Any, inputs: tf.Tensor, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
    scope: Any = None,
) -> tuple[tf.Tensor, Any]:  # fmt: skip
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
        words = (
            owner,
            name,
            " or ".join(repr(choice) for choice in accepted),
            value,
            nearest(value, map(str, accepted)),
        )
        raise ConfigError("%s: %s must be %s, got %r%s" % words)


def _size(input_shape):
    size = tf.TensorShape(input_shape).as_list()[-1]
    if size is None:
        raise ConfigError("the last axis of the input must be known, got shape %s" % input_shape)
    return size


def _lengths(seq_length):
    """Returns how many steps of each sequence count, int32 [batch], or None for all."""
    if seq_length is None:
        return None
    given = tf.convert_to_tensor(seq_length)
    if given.shape.rank == 3:
        given = tf.reduce_sum(tf.cast(given[..., 0] > 0, tf.int32), 0)
    return tf.cast(given, tf.int32)


def _within(lengths, x):
    """Returns which steps count, bool [time, batch, 1]."""
    return tf.transpose(tf.sequence_mask(lengths, tf.shape(x)[0]))[..., tf.newaxis]


def _turned(sequence, lengths):
    """Returns the steps that count in the opposite order."""
    return sequence[::-1] if lengths is None else tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1)


def _held(start, sequence, lengths):
    """Returns the states, each sequence's last one from its end on; the beginning state where it has no step."""
    states = tf.concat([start[tf.newaxis], sequence], 0)
    times = tf.minimum(tf.range(1, tf.shape(states)[0])[:, tf.newaxis], lengths)
    batches = tf.broadcast_to(tf.range(tf.shape(start)[0]), tf.shape(times))
    return tf.gather_nd(states, tf.stack([times, batches], -1))


def _unrolled(step, sequences, lengths, states, others):
    """Returns the sequences of states and of other results along time; past a sequence's length the states stay.

    Args:
        step: function (states, this step's part of each sequence) -> (new states, other results).
        sequences: list of Tensors [time, batch, ...].
        lengths: int32 [batch] or None.
        states: tuple of Tensors [batch, units], before the first step.
        others: how many other results a step has, each [batch, units].
    """
    keep = [] if lengths is None else [_within(lengths, sequences[0])]

    def advance(before, now):
        before = before[: len(states)]
        new, results = step(before, now[: len(sequences)])
        if keep:
            new = tuple(tf.where_v2(now[-1], one, other) for one, other in zip(new, before))
        return (*new, *results)

    return tf.scan(advance, (*sequences, *keep), (*states, *[tf.zeros_like(states[0])] * others))
