"""tf.contrib.cudnn_rnn: cells with cuDNN's equations, and its layers made of them.

Weights are ordinary variables under the names that CudnnCompatible cells always had
("rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel"); opaque cuDNN blobs cannot be read.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.blocks import LSTMBlockCell
from npu_shim.compat.contrib.rnn.linear import input_depth

CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION = "unidirectional", "bidirectional"
CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_RELU, CUDNN_RNN_TANH = "lstm", "gru", "rnn_relu", "rnn_tanh"
CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE = "linear_input", "skip_input", "auto_select"
CUDNN_LSTM_PARAMS_PER_LAYER, CUDNN_GRU_PARAMS_PER_LAYER = 8, 6
CUDNN_RNN_TANH_PARAMS_PER_LAYER, CUDNN_RNN_RELU_PARAMS_PER_LAYER = 2, 2


class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """LSTM as cuDNN computes it: no forget bias, clip or peepholes."""

    def __init__(self, num_units: int, reuse: bool | None = None) -> None:
        super().__init__(num_units, forget_bias=0, cell_clip=None, use_peephole=False, reuse=reuse,
                         name="cudnn_compatible_lstm_cell")  # fmt: skip


class CudnnCompatibleGRUCell(tf.nn.rnn_cell.GRUCell):
    """GRU as cuDNN computes it: the reset gate is applied after the recurrent kernel."""

    def __init__(self, num_units: int, reuse: bool | None = None, kernel_initializer: Any = None) -> None:
        super().__init__(num_units, activation=None, reuse=reuse, kernel_initializer=kernel_initializer)

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables."""
        units, depth, start = self._num_units, input_depth(inputs_shape), self._kernel_initializer
        self._gate_kernel = self.add_weight("gates/kernel", shape=[depth + units, 2 * units], initializer=start)
        self._gate_bias = self.add_weight("gates/bias", shape=[2 * units], initializer=tf.ones_initializer())
        maps = (("input_projection", depth), ("hidden_projection", units))
        self._maps = [
            (
                self.add_weight("candidate/%s/kernel" % name, shape=[rows, units], initializer=start),
                self.add_weight("candidate/%s/bias" % name, shape=[units], initializer=tf.zeros_initializer()),
            )
            for name, rows in maps
        ]
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[tf.Tensor, Any]:
        """Returns (h, h)."""
        gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, state], 1), self._gate_kernel), self._gate_bias)
        r, u = tf.split(tf.sigmoid(gates), 2, 1)
        x, h = (tf.nn.bias_add(tf.matmul(v, k), b) for v, (k, b) in zip((inputs, state), self._maps))
        h = (1 - u) * tf.tanh(x + r * h) + u * state
        return h, h


class _CudnnRNN:
    """Layers of one kind of cell over [time, batch, depth], called as cuDNN's were.

    Args:
        num_layers: int.
        num_units: int.
        input_mode: "linear_input".
        direction: "unidirectional" or "bidirectional".
        dropout: float, between layers when training.
        seed: int.
        dtype: of the state.
        kernel_initializer: of the kernels.
        bias_initializer: unused.
        name: variable scope.

    Raises:
        ValueError: another input mode or direction.
    """

    def __init__(
        self, num_layers, num_units, input_mode="linear_input", direction="unidirectional", dropout=0.0, seed=None,
        dtype=tf.float32, kernel_initializer=None, bias_initializer=None, name=None,
    ):  # fmt: skip
        if input_mode != "linear_input":
            raise ValueError(
                "npu_shim: %s has input_mode 'linear_input' only, not %r" % (type(self).__name__, input_mode)
            )
        if direction not in ("unidirectional", "bidirectional"):
            raise ValueError("direction must be 'unidirectional' or 'bidirectional', not %r" % direction)
        self.num_layers = num_layers
        self.num_units = num_units
        self.direction = direction
        self._dropout = dropout
        self._seed = seed
        self._dtype = dtype
        self._initializer = kernel_initializer
        self._name = name
        self._built = False

    def build(self, input_shape=None):
        """Does nothing: the first call makes the variables."""

    def __call__(self, inputs, initial_state=None, sequence_lengths=None, time_major=True, training=True):
        """Runs the layers.

        Args:
            inputs: [time, batch, depth], or [batch, time, depth] without `time_major`.
            initial_state: optional tuple of [layers * directions, batch, units], (h, c) for LSTM and (h,) for GRU.
            sequence_lengths: optional int32 [batch].
            time_major: bool.
            training: bool, whether to apply dropout.

        Returns:
            (outputs, states like `initial_state`).
        """
        scope = self._name or "cudnn_" + self.KIND
        if not self._built:
            with tf.variable_scope(None, scope) as opened:
                self._scope = opened
        states = []
        with tf.variable_scope(
            self._scope, initializer=self._initializer, reuse=self._built, auxiliary_name_scope=False
        ):
            for layer in range(self.num_layers):
                if layer and training and self._dropout:
                    inputs = tf.nn.dropout(inputs, 1 - self._dropout, seed=self._seed)
                inputs, last = self._layer(layer, inputs, initial_state, sequence_lengths, time_major)
                states += last
        self._built = True
        return inputs, tuple(tf.stack(part) for part in zip(*states))

    def _layer(self, layer, inputs, initial_state, lengths, time_major):
        count = 1 if self.direction == "unidirectional" else 2
        first = [None] * count
        if initial_state is not None:
            first = [self._to_cell([part[layer * count + i] for part in initial_state]) for i in range(count)]
        options = {"sequence_length": lengths, "dtype": self._dtype, "time_major": time_major}
        with tf.variable_scope("cell_%d" % layer):
            if count == 1:
                outputs, state = tf.nn.dynamic_rnn(self._cell(), inputs, initial_state=first[0], **options)
                return outputs, [self._from_cell(state)]
            outputs, state = tf.nn.bidirectional_dynamic_rnn(
                self._cell(), self._cell(), inputs, initial_state_fw=first[0], initial_state_bw=first[1], **options
            )
            return tf.concat(outputs, 2), [self._from_cell(s) for s in state]


class CudnnLSTM(_CudnnRNN):
    """LSTM layers; the state is (h, c)."""

    KIND = "lstm"

    def _cell(self):
        return CudnnCompatibleLSTMCell(self.num_units)

    def _to_cell(self, parts):
        return tf.nn.rnn_cell.LSTMStateTuple(parts[1], parts[0])

    def _from_cell(self, state):
        return [state.h, state.c]


class CudnnGRU(_CudnnRNN):
    """GRU layers; the state is (h,)."""

    KIND = "gru"

    def _cell(self):
        return CudnnCompatibleGRUCell(self.num_units, kernel_initializer=self._initializer)

    def _to_cell(self, parts):
        return parts[0]

    def _from_cell(self, state):
        return [state]
