"""LSTMs over time and frequency of tf.contrib.rnn; equations and variable names are those of TensorFlow 1.15.5.

The features of a step are cut into windows, `feature_size` wide and `frequency_skip` apart; a cell runs over them as
over a sequence. In the time-frequency LSTM (Sainath and Li 2016) the output of a window goes to the next one; in the
grid LSTM (Kalchbrenner et al. 2016) there is a second LSTM along the frequencies.
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import Cell, input_depth, sharded


def _windows(inputs, size, skip, start, end):
    """Windows [batch, size] of inputs [batch, depth] from a column on, `skip` apart, as many as fit before `end`."""
    return [inputs[:, at : at + size] for at in range(start, end - size + 1, skip)]


def _clipped(c, limit):
    return c if limit is None else tf.clip_by_value(c, -limit, limit)


class TimeFreqLSTMCell(Cell):
    """LSTM over time whose outputs also go from each window of features to the next.

    The state is [batch, windows * 2 * num_units]: c and m of each window; the output [batch, windows * num_units].

    Args:
        num_units: int.
        use_peepholes: bool.
        cell_clip: float, or None for no clip.
        initializer: of the variables.
        num_unit_shards: int, the number of variables into which the kernel is split.
        forget_bias: float.
        feature_size: int, the width of a window; the whole input by default.
        frequency_skip: int.
        reuse: whether the variables exist.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: Any = None,
        initializer: Any = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int = 1,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_unit_shards = num_unit_shards
        self._forget_bias = forget_bias
        self._feature_size = feature_size
        self._frequency_skip = frequency_skip
        self._state_size = 2 * num_units
        self._output_size = num_units

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (outputs, next state) of all windows, side by side."""
        units, depth = self._num_units, input_depth(inputs.shape)
        windows = _windows(inputs, self._feature_size or depth, self._frequency_skip, 0, depth)
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            rows = input_depth(windows[0].shape) + 2 * units
            kernel = sharded("W", [rows, 4 * units], inputs.dtype, self._num_unit_shards)
            bias = tf.get_variable("B", [4 * units], inputs.dtype, tf.zeros_initializer())
            names = "FIO" if self._use_peepholes else ""
            diagonals = {gate: tf.get_variable("W_%s_diag" % gate, [units], inputs.dtype) for gate in names}
            states, outputs = [], [tf.zeros_like(state[:, :units])]
            for window, (c, m) in zip(windows, _pairs(state, len(windows), units)):
                gates = tf.nn.bias_add(tf.matmul(tf.concat([window, m, outputs[-1]], 1), kernel), bias)
                i, j, f, o = tf.split(gates, 4, 1)
                if diagonals:
                    f, i = f + diagonals["F"] * c, i + diagonals["I"] * c
                f = f + self._forget_bias
                c = _clipped(tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j), self._cell_clip)
                o = o + diagonals["O"] * c if diagonals else o
                outputs.append(tf.sigmoid(o) * tf.tanh(c))
                states += [c, outputs[-1]]
        return tf.concat(outputs[1:], 1), tf.concat(states, 1)


def _pairs(state, number, units):
    """(c, m), each [batch, units], of `number` windows, from a state that has them side by side."""
    parts = [state[:, at * units : (at + 1) * units] for at in range(2 * number)]
    return list(zip(parts[::2], parts[1::2]))


class GridLSTMCell(Cell):
    """Two LSTMs over windows of features, along time and along frequency.

    The state has c and m of each window: a named tuple of [batch, num_units] (state_f00_b00_c, state_f00_b00_m, ...),
    or all of them side by side. The output is [batch, windows * 2 * num_units]: the outputs along time and frequency.

    Args:
        num_units: int.
        use_peepholes: bool.
        share_time_frequency_weights: whether both LSTMs have the same variables.
        cell_clip: float, or None for no clip.
        initializer: of the variables.
        num_unit_shards: int, the number of variables into which a kernel is split.
        forget_bias: float.
        feature_size: int, the width of a window; the whole input by default.
        frequency_skip: int.
        num_frequency_blocks: list of int, the number of windows in each block.
        start_freqindex_list: list of int, the first column of each block; one block of all columns by default.
        end_freqindex_list: list of int, the column behind the last of each block.
        couple_input_forget_gates: whether the forget gate is 1 - the input gate.
        state_is_tuple: bool.
        reuse: whether the variables exist.

    Raises:
        ValueError: num_frequency_blocks is missing, or (in a step) not the number of windows.
    """

    DIRECTIONS: tuple[str, ...] = ("",)

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: Any = None,
        initializer: Any = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Any = None,
        start_freqindex_list: Any = None,
        end_freqindex_list: Any = None,
        couple_input_forget_gates: bool = False,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        if num_frequency_blocks is None:
            raise ValueError("Must specify num_frequency_blocks")
        if (start_freqindex_list is None) != (end_freqindex_list is None):
            raise ValueError("start_freqindex_list and end_freqindex_list must be given together")
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._share = share_time_frequency_weights
        self._couple = couple_input_forget_gates
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_unit_shards = num_unit_shards
        self._forget_bias = forget_bias
        self._feature_size = feature_size
        self._frequency_skip = frequency_skip
        self._blocks = list(num_frequency_blocks)
        self._columns = list(zip(start_freqindex_list, end_freqindex_list)) if start_freqindex_list else None
        self._state_is_tuple = state_is_tuple
        names = [
            "%sstate_f%02d_b%02d_%s" % (direction + "_" if direction else "", window, block, part)
            for direction in self.DIRECTIONS
            for block, windows in enumerate(self._blocks)
            for window in range(windows)
            for part in "cm"
        ]
        self._state_tuple_type = collections.namedtuple("GridLSTMStateTuple", names)  # type: ignore[misc]
        self._output_size = num_units * len(names)
        self._state_size = self._state_tuple_type(*[num_units] * len(names)) if state_is_tuple else self._output_size

    @property
    def state_tuple_type(self) -> Any:
        """The named tuple that a state is."""
        return self._state_tuple_type

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output, next state)."""
        pairs = list(zip(state[::2], state[1::2])) if self._state_is_tuple else _pairs(
            state, sum(self._blocks), self._num_units
        )  # fmt: skip
        outputs, states = [], []
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            for direction in self.DIRECTIONS:
                own, pairs = pairs[: sum(self._blocks)], pairs[sum(self._blocks) :]
                own_results = self._direction(direction, inputs, own)
                outputs, states = outputs + own_results[0], states + own_results[1]
        return tf.concat(outputs, 1), (
            self._state_tuple_type(*states) if self._state_is_tuple else tf.concat(states, 1)
        )

    def _direction(self, direction, inputs, pairs):
        """(Outputs, states) of all blocks, in one direction of the frequencies."""
        return self._run(self._features(inputs), pairs)

    def _run(self, blocks, pairs):
        outputs, states = [], []
        for block, windows in enumerate(blocks):
            own, pairs = pairs[: len(windows)], pairs[len(windows) :]
            block_results = self._block(block, windows, own)
            outputs, states = outputs + block_results[0], states + block_results[1]
        return outputs, states

    def _features(self, inputs, offset=0):
        """The windows of each block, shifted by columns; what lies outside of the inputs is 0."""
        depth = input_depth(inputs.shape)
        padded = tf.pad(inputs, [[0, 0], [max(-offset, 0), max(offset, 0)]]) if offset else inputs
        shift, size = max(offset, 0), self._feature_size or depth
        columns = self._columns or [(0, depth)]
        blocks = [
            _windows(padded, size, self._frequency_skip or 1, start + shift, end + shift) for start, end in columns
        ]
        if [len(windows) for windows in blocks] != self._blocks:
            raise ValueError(
                "Invalid num_frequency_blocks: the input has %s windows, num_frequency_blocks is %s"
                % ([len(windows) for windows in blocks], self._blocks)
            )
        return blocks

    def _block(self, block, windows, pairs):
        """(Outputs, states) of the windows of a block."""
        axes = ("f",) if self._share else ("f", "t")
        kernels = {axis: self._kernel(axis, block, windows[0]) for axis in axes}
        diagonals = self._diagonals(axes, block, windows[0].dtype)
        across = (tf.zeros_like(pairs[0][0]), tf.zeros_like(pairs[0][1]))
        outputs, states = [], []
        for window, along in zip(windows, pairs):
            seen = tf.concat([window, along[1], across[1]], 1)
            gates = {axis: tf.nn.bias_add(tf.matmul(seen, kernel), bias) for axis, (kernel, bias) in kernels.items()}
            gates = [tf.split(gates.get(axis, gates["f"]), 3 if self._couple else 4, 1) for axis in "ft"]
            cs = (across[0], along[0])
            seeing = [diagonals.get(axis, diagonals.get("f", {})) for axis in "ft"]
            new = [self._state(peepholes, g, cs, old) for peepholes, g, old in zip(seeing, gates, cs)]
            across, along = (
                (c, tf.sigmoid(g[-1] + _seen(peepholes, "O", new)) * tf.tanh(c))
                for peepholes, g, c in zip(seeing, gates, new)
            )
            outputs += [along[1], across[1]]
            states += along
        return outputs, states

    def _state(self, peepholes, gates, cs, old):
        """The next c along an axis: f * c + i * tanh(j)."""
        i = tf.sigmoid(gates[0] + _seen(peepholes, "I", cs))
        if self._couple:
            f = 1.0 - i
        else:
            f = tf.sigmoid(gates[2] + self._forget_bias + _seen(peepholes, "F", cs))
        return _clipped(f * old + i * tf.tanh(gates[1]), self._cell_clip)

    def _kernel(self, axis, block, window):
        wide = (3 if self._couple else 4) * self._num_units
        rows = input_depth(window.shape) + 2 * self._num_units
        kernel = sharded("W_%s_%d" % (axis, block), [rows, wide], window.dtype, self._num_unit_shards)
        return kernel, tf.get_variable("B_%s_%d" % (axis, block), [wide], window.dtype, tf.zeros_initializer())

    def _diagonals(self, axes, block, dtype):
        """{axis: {gate: what it sees of c along frequency and of c along time}}; {} without peepholes."""
        if not self._use_peepholes:
            return {}
        return {
            axis: {
                gate: [
                    tf.get_variable("W_%s_diag_%s%s_%d" % (gate, of, to, block), [self._num_units], dtype)
                    for to in "ft"
                ]
                for gate in ("IO" if self._couple else "FIO")
            }
            for axis, of in zip(axes, ("freq", "time"))
        }


def _seen(peepholes, gate, cs):
    """What a gate sees of c along frequency and along time."""
    return sum(w * c for w, c in zip(peepholes[gate], cs)) if peepholes else 0.0


class BidirectionalGridLSTMCell(GridLSTMCell):
    """GridLSTMCell in both directions of the frequencies, with variables of their own.

    Args:
        backward_slice_offset: int, columns by which the windows of the second direction are shifted.
        **kwargs: as of GridLSTMCell, whose state is a tuple.
    """

    DIRECTIONS = ("fwd", "bwd")

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: Any = None,
        initializer: Any = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Any = None,
        start_freqindex_list: Any = None,
        end_freqindex_list: Any = None,
        couple_input_forget_gates: bool = False,
        backward_slice_offset: int = 0,
        reuse: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, use_peepholes, share_time_frequency_weights, cell_clip, initializer, num_unit_shards,
            forget_bias, feature_size, frequency_skip, num_frequency_blocks, start_freqindex_list, end_freqindex_list,
            couple_input_forget_gates, True, reuse,
        )  # fmt: skip
        self._backward_slice_offset = backward_slice_offset

    def _direction(self, direction, inputs, pairs):
        blocks = self._features(inputs, self._backward_slice_offset if direction == "bwd" else 0)
        if direction == "bwd":
            blocks = [windows[::-1] for windows in blocks]
        with tf.variable_scope(direction):
            return self._run(blocks, pairs)
