"""LSTM and GRU of tf.contrib.rnn that were one kernel per step (behaviour and variable names of TensorFlow 1.15.5).

A single step consists of ordinary ops here: TensorFlow dropped the gradients of its kernels, and XLA and mixed
precision handle a MatMul. LSTMBlockFusedCell runs TensorFlow's BlockLSTM, which still has its gradient.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import LayerCell, LSTMStateTuple, input_depth

Layer = tf.layers.Layer


class LSTMBlockCell(LayerCell):
    """LSTM (Zaremba et al. 2014), with peepholes and a clip of the state on request.

    Args:
        num_units: int.
        forget_bias: float.
        cell_clip: float, or None for no clip.
        use_peephole: bool.
        dtype: of the layer.
        reuse: whether the variables exist.
        name: of the layer; variables are "kernel", "bias", and "w_i_diag" and its sisters.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: Any = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: bool | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._use_peephole = use_peephole
        self._cell_clip = cell_clip if cell_clip is not None else -1

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        _make_lstm(self, input_depth(inputs_shape))

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (h, LSTMStateTuple(c, h))."""
        if len(state) != 2:
            raise ValueError("Expecting state to be a tuple with length 2.")
        c, h = state
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([inputs, h], 1), self._kernel), self._bias), 4, 1)
        f = f + self._forget_bias
        if self._use_peephole:
            i, f = i + c * self._w_i_diag, f + c * self._w_f_diag
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        if self._cell_clip > 0:
            # gradients pass the clip, as they did in the kernel
            c += tf.stop_gradient(tf.clip_by_value(c, -self._cell_clip, self._cell_clip) - c)
        if self._use_peephole:
            o = o + c * self._w_o_diag
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, LSTMStateTuple(c, h)


def _make_lstm(cell, depth):
    units = cell._num_units
    cell._kernel = cell.add_weight("kernel", shape=[depth + units, units * 4])
    cell._bias = cell.add_weight("bias", shape=[units * 4], initializer=tf.zeros_initializer())
    if cell._use_peephole:
        cell._w_i_diag = cell.add_weight("w_i_diag", shape=[units])
        cell._w_f_diag = cell.add_weight("w_f_diag", shape=[units])
        cell._w_o_diag = cell.add_weight("w_o_diag", shape=[units])
    cell.built = True


class GRUBlockCell(LayerCell):
    """GRU (Cho et al. 2014); variables are "w_ru", "b_ru", "w_c", "b_c".

    Args:
        num_units: int.
        cell_size: int, an older name of `num_units`.
        reuse: whether the variables exist.
        name: of the layer.

    Raises:
        ValueError: not exactly one of the two sizes is given.
    """

    NAMES = ("w_ru", "b_ru", "w_c", "b_c")

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: bool | None = None,
        name: str = "gru_cell",
    ) -> None:
        super().__init__(_reuse=reuse, name=name)
        if (cell_size is None) == (num_units is None):
            raise ValueError("Exactly one of num_units or cell_size must be provided.")
        self._num_units = cell_size if num_units is None else num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        units, deep = self._num_units, input_depth(inputs_shape) + self._num_units
        self._gate_kernel = self.add_weight(self.NAMES[0], shape=[deep, units * 2])
        self._gate_bias = self.add_weight(self.NAMES[1], shape=[units * 2], initializer=tf.ones_initializer())
        self._candidate_kernel = self.add_weight(self.NAMES[2], shape=[deep, units])
        self._candidate_bias = self.add_weight(self.NAMES[3], shape=[units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, h_prev: Any) -> tuple[Any, Any]:
        """Returns (h, h)."""
        gates = tf.matmul(tf.concat([inputs, h_prev], 1), self._gate_kernel)
        r, u = tf.split(tf.sigmoid(tf.nn.bias_add(gates, self._gate_bias)), 2, 1)
        candidate = tf.matmul(tf.concat([inputs, r * h_prev], 1), self._candidate_kernel)
        h = u * h_prev + (1 - u) * tf.tanh(tf.nn.bias_add(candidate, self._candidate_bias))
        return h, h


class GRUBlockCellV2(GRUBlockCell):
    """GRUBlockCell with the variable names of tf.nn.rnn_cell.GRUCell."""

    NAMES = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")


class LSTMBlockWrapper(Layer):
    """A layer that runs a whole sequence [time, batch, depth]; its subclass runs the steps."""

    @property
    def num_units(self) -> int:
        """The number of units, an int."""
        raise NotImplementedError

    def _call_cell(self, inputs, initial_cell_state, initial_output, dtype, sequence_length):
        raise NotImplementedError

    def call(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None
    ) -> tuple[Any, Any]:
        """Runs the sequence.

        Args:
            inputs: [time, batch, depth], or a list of [batch, depth].
            initial_state: optional (c, h).
            dtype: of the zero state, when none is given.
            sequence_length: optional int32 [batch]; outputs past it are zero, and the state is that at the end.

        Returns:
            (outputs like inputs, LSTMStateTuple of the last step).
        """
        is_list = isinstance(inputs, list)
        inputs = tf.stack(inputs) if is_list else inputs
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified")
            zeros = tf.zeros([tf.shape(inputs)[1], self.num_units], dtype)
            initial_state = zeros, zeros
        if len(initial_state) != 2:
            raise ValueError("Expecting initial_state to be a tuple with length 2 or None")
        c, h = initial_state
        if sequence_length is not None:
            sequence_length = tf.convert_to_tensor(sequence_length)
        states, outputs = self._call_cell(inputs, c, h, dtype or c.dtype, sequence_length)
        if sequence_length is None:
            last = states[-1], outputs[-1]
        else:
            inside = tf.sequence_mask(sequence_length, tf.shape(inputs)[0], dtype=outputs.dtype)
            outputs *= tf.expand_dims(tf.transpose(inside), -1)
            # the state after n steps is at n; the initial state is at 0
            at = tf.stack([tf.cast(sequence_length, tf.int32), tf.range(tf.shape(inputs)[1])], 1)
            last = [tf.gather_nd(tf.concat([[x], xs], 0), at) for x, xs in ((c, states), (h, outputs))]
        return (tf.unstack(outputs) if is_list else outputs), LSTMStateTuple(*last)


class LSTMBlockFusedCell(LSTMBlockWrapper):
    """LSTM over a whole sequence; arguments and variables are those of LSTMBlockCell."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: Any = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = cell_clip if cell_clip is not None else -1
        self._use_peephole = use_peephole

    @property
    def num_units(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Makes the variables."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        _make_lstm(self, input_depth(shape))

    def _call_cell(self, inputs, initial_cell_state, initial_output, dtype, sequence_length):
        steps = tf.shape(inputs)[0] if sequence_length is None else tf.reduce_max(sequence_length)
        nothing = tf.zeros([self._num_units], dtype)
        peepholes = (self._w_i_diag, self._w_f_diag, self._w_o_diag) if self._use_peephole else [nothing] * 3
        done = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(steps, tf.int64), x=inputs, cs_prev=initial_cell_state, h_prev=initial_output,
            w=tf.convert_to_tensor(self._kernel), b=tf.convert_to_tensor(self._bias), forget_bias=self._forget_bias,
            cell_clip=self._cell_clip, use_peephole=self._use_peephole,
            **{name: tf.convert_to_tensor(w) for name, w in zip(("wci", "wcf", "wco"), peepholes)},
        )  # fmt: skip
        return done.cs, done.h


class FusedRNNCell:
    """Runs a whole sequence; called with (inputs [time, batch, ...], initial_state, dtype, sequence_length, scope)."""


class FusedRNNCellAdaptor(FusedRNNCell):
    """Runs an ordinary cell as a FusedRNNCell, by static or dynamic unrolling.

    Args:
        cell: an RNNCell.
        use_dynamic_rnn: bool.
    """

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell = cell
        self._use_dynamic_rnn = use_dynamic_rnn

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Returns (outputs like inputs, last state)."""
        is_list = isinstance(inputs, list)
        options = {"initial_state": initial_state, "dtype": dtype, "sequence_length": sequence_length, "scope": scope}
        if self._use_dynamic_rnn:
            inputs = tf.stack(inputs) if is_list else inputs
            outputs, state = tf.nn.dynamic_rnn(self._cell, inputs, time_major=True, **options)
            return (tf.unstack(outputs) if is_list else outputs), state
        outputs, state = tf.nn.static_rnn(self._cell, inputs if is_list else tf.unstack(inputs), **options)
        return (outputs if is_list else tf.stack(outputs)), state


class TimeReversedFusedRNN(FusedRNNCell):
    """Runs a FusedRNNCell backwards, and reverses its outputs."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Returns (outputs like inputs, last state)."""
        outputs, state = self._cell(
            _reversed(inputs, sequence_length), initial_state=initial_state, dtype=dtype,
            sequence_length=sequence_length, scope=scope,
        )  # fmt: skip
        return _reversed(outputs, sequence_length), state


def _reversed(x, lengths):
    if isinstance(x, list):
        return x[::-1]
    return tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
