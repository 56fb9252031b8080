"""The cell of the Neural Turing Machine (Graves et al. 2014; Collier and Beel 2018), as of TensorFlow 1.15.5."""

from __future__ import annotations

import collections
import math
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import LayerCell, input_depth

NTMControllerState = collections.namedtuple(
    "NTMControllerState", ("controller_state", "read_vector_list", "w_list", "M", "time")
)


class NTMCell(LayerCell):
    """A controller that reads and writes a memory [memory_size, memory_vector_dim] by heads.

    Args:
        controller: RNNCell.
        memory_size: int, rows of the memory.
        memory_vector_dim: int, size of a row.
        read_head_num: int.
        write_head_num: int.
        shift_range: int, by how many rows a head may move in a step.
        output_dim: int, the inputs' depth if None.
        clip_value: float; what the controller says to the heads, and the output, are clipped to +- this.
        dtype: of the variables.
        name: of the layer.
    """

    def __init__(
        self, controller: Any, memory_size: int, memory_vector_dim: int, read_head_num: int, write_head_num: int,
        shift_range: int = 1, output_dim: int | None = None, clip_value: float = 20, dtype: Any = tf.float32,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dtype=dtype, name=name)
        self.controller = controller
        self.memory_size = memory_size
        self.memory_vector_dim = memory_vector_dim
        self.read_head_num = read_head_num
        self.write_head_num = write_head_num
        self.shift_range = shift_range
        self.output_dim = output_dim
        self.clip_value = clip_value
        self.num_heads = read_head_num + write_head_num
        self.num_parameters_per_head = memory_vector_dim + 2 * shift_range + 4
        self.total_parameter_num = (
            self.num_parameters_per_head * self.num_heads + 2 * memory_vector_dim * write_head_num
        )

    @property
    def state_size(self) -> Any:
        return NTMControllerState(
            self.controller.state_size,
            [self.memory_vector_dim] * self.read_head_num,
            [self.memory_size] * self.num_heads,
            tf.TensorShape([self.memory_size * self.memory_vector_dim]),
            tf.TensorShape([]),
        )

    @property
    def output_size(self) -> Any:
        return self.output_dim

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The state before the first step; its zeros are replaced by the variables' values in that step."""
        return NTMControllerState(
            self.controller.zero_state(batch_size, dtype),
            [tf.zeros([batch_size, self.memory_vector_dim]) for _ in range(self.read_head_num)],
            [tf.zeros([batch_size, self.memory_size]) for _ in range(self.num_heads)],
            tf.zeros([batch_size, self.memory_size, self.memory_vector_dim]),
            tf.zeros([], tf.int32),
        )

    def build(self, inputs_shape: Any) -> None:
        """Makes the variables.

        Raises:
            ValueError: the inputs' depth is not known.
        """
        self.output_dim = self.output_dim or input_depth(inputs_shape)
        wide = self.controller.output_size
        self._parameters = self._linear("parameters", wide, self.total_parameter_num)
        self._output = self._linear("output", wide + self.memory_vector_dim * self.read_head_num, self.output_dim)
        self._first_reads = self._rows("initial_read_vector_%d", self.read_head_num, self.memory_vector_dim)
        self._first_addresses = self._rows("initial_address_weights_%d", self.num_heads, self.memory_size)
        self._memory = self.add_weight(
            "memory", shape=[self.memory_size, self.memory_vector_dim], initializer=tf.constant_initializer(1e-6)
        )
        self.built = True

    def _linear(self, name, inputs, outputs):
        """(Kernel, bias)."""
        normal = tf.truncated_normal_initializer(stddev=1.0 / math.sqrt(inputs))
        kernel = self.add_weight(name + "_kernel", shape=[inputs, outputs], initializer=normal)
        return kernel, self.add_weight(name + "_bias", shape=[outputs], initializer=tf.zeros_initializer())

    def _rows(self, name, number, size):
        uniform = tf.glorot_uniform_initializer()
        return [self.add_weight(name % i, shape=[1, size], initializer=uniform) for i in range(number)]

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output [batch, output_dim], NTMControllerState)."""
        batch, first = tf.shape(inputs)[0], tf.equal(state.time, 0)

        def begun(make: Callable[[], Any], before: Any) -> Any:
            value = tf.cond(first, make, lambda: before)
            value.set_shape(before.shape)
            return value

        def tiled(row: Callable[[Any], Any], variable: Any) -> Callable[[], Any]:
            return lambda: tf.tile(row(variable), [batch, 1])

        reads = [begun(tiled(tf.tanh, v), old) for v, old in zip(self._first_reads, state.read_vector_list)]
        weights = [begun(tiled(tf.nn.softmax, v), old) for v, old in zip(self._first_addresses, state.w_list)]
        memory = begun(lambda: tf.tile(self._memory[None], [batch, 1, 1]), state.M)

        told, controller_state = self.controller(tf.concat([inputs, *reads], 1), state.controller_state)
        said = self._clipped(told, self._parameters)
        cut = self.num_parameters_per_head * self.num_heads
        heads = tf.split(said[:, :cut], self.num_heads, 1)
        weights = [self._address(head, memory, old) for head, old in zip(heads, weights)]
        reads = [tf.reduce_sum(w[:, :, None] * memory, 1) for w in weights[: self.read_head_num]]
        memory = self._written(memory, weights[self.read_head_num :], said[:, cut:])
        output = self._clipped(tf.concat([told, *reads], 1), self._output)
        return output, NTMControllerState(controller_state, reads, weights, memory, state.time + 1)

    def _clipped(self, inputs, linear):
        kernel, bias = linear
        return tf.clip_by_value(tf.nn.bias_add(tf.matmul(inputs, kernel), bias), -self.clip_value, self.clip_value)

    def _address(self, head, memory, before):
        """The weights [batch, memory_size] of a head (equations 5 to 9 of the paper)."""
        width = self.memory_vector_dim
        key, strength = tf.tanh(head[:, :width]), tf.nn.softplus(head[:, width : width + 1])
        gate, shifts = tf.sigmoid(head[:, width + 1 : width + 2]), tf.nn.softmax(head[:, width + 2 : -1])
        likeness = tf.matmul(memory, key[:, :, None])[:, :, 0]
        likeness /= tf.norm(memory, axis=2) * tf.norm(key, axis=1, keepdims=True) + 1e-8
        mixed = gate * tf.nn.softmax(strength * likeness) + (1 - gate) * before
        # shifts of 0, 1, ... stand first, those of ..., -2, -1 last
        moves = [*range(self.shift_range + 1), *range(-self.shift_range, 0)]
        moved = tf.add_n([shifts[:, i : i + 1] * tf.roll(mixed, move, 1) for i, move in enumerate(moves)])
        sharp = tf.pow(moved, tf.nn.softplus(head[:, -1:]) + 1)
        return sharp / tf.reduce_sum(sharp, 1, keepdims=True)

    def _written(self, memory, weights, said):
        """The memory after each write head has erased and added."""
        pairs = tf.split(said, 2 * self.write_head_num, 1) if self.write_head_num else []
        for w, erase, add in zip(weights, pairs[::2], pairs[1::2]):
            memory *= 1 - w[:, :, None] * tf.sigmoid(erase)[:, None]
            memory += w[:, :, None] * tf.tanh(add)[:, None]
        return memory
