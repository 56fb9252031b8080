"""tf.contrib.recurrent: a recurrence over pure functions, and dynamic_rnn by another name (as of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.loops import transpose_batch_time
from npu_shim.compat.names import names


def Recurrent(
    theta: Any, state0: Any, inputs: Any, cell_fn: Callable[..., Any], cell_grad: Callable[..., Any] | None = None,
    extras: Any = None, max_input_length: Any = None, use_tpu: bool = False, aligned_end: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """State = cell_fn(theta, state, inputs[t])[0], for t in order.

    Args:
        theta: structure of tensors, the weights.
        state0: structure of tensors, the first state.
        inputs: structure of tensors [time, ...].
        cell_fn: function of (theta, state, inputs of one time); returns (new state, extras).
        cell_grad: function of (theta, state, inputs, extras, gradient of the new state) that returns the gradients of
            the first three; TensorFlow's own gradient if None.
        extras: not needed: their shapes come from `cell_fn`.
        max_input_length: int or scalar tensor, how many times there are; `time` if None.
        use_tpu: no effect here.
        aligned_end: whether the last `max_input_length` times count, not the first.

    Returns:
        (The states of all times [time, ...], 0 where none was computed; the last state).
    """
    del extras, use_tpu
    times = tf.shape(tf.nest.flatten(inputs)[0])[0]
    length = times if max_input_length is None else tf.cast(max_input_length, tf.int32)
    begin, end = (times - length, times) if aligned_end else (0, length)
    step = _Step(cell_fn, cell_grad, theta, state0, inputs)
    state0 = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(state0)]
    stored = [tf.TensorArray(tensor.dtype, end - begin, element_shape=tensor.shape) for tensor in state0]

    def body(t: Any, state: Any, arrays: Any) -> Any:
        new = step(state, t)
        return t + 1, new, [array.write(t - begin, tensor) for array, tensor in zip(arrays, new)]

    _, last, stored = tf.while_loop(lambda t, *_: t < end, body, [begin, state0, stored])
    states = [_framed(array.stack(), begin, times - end) for array in stored]
    return step.as_state(states), step.as_state(last)


def _unstacked(tensor):
    return tf.TensorArray(tensor.dtype, tf.shape(tensor)[0], element_shape=tensor.shape[1:]).unstack(tensor)


def _framed(rows, before, after):
    """Rows between so many rows of zeros."""
    zeros = [tf.zeros(tf.concat([[number], tf.shape(rows)[1:]], 0), rows.dtype) for number in (before, after)]
    return tf.concat([zeros[0], rows, zeros[1]], 0)


class _Step:
    """One step, as a function of a flat state and the time."""

    def __init__(self, cell_fn, cell_grad, theta, state0, inputs):
        self._cell_fn, self._cell_grad = cell_fn, cell_grad
        self._parts = [theta, state0, inputs]
        # read from arrays, whose gradient is dense
        self._arrays = [_unstacked(tf.convert_to_tensor(tensor)) for tensor in tf.nest.flatten(inputs)]

    def __call__(self, state, t):
        theta, _, inputs = self._parts
        now = tf.nest.pack_sequence_as(inputs, [array.read(t) for array in self._arrays])
        parts = [theta, self.as_state(state), now]
        computed = tf.nest.flatten(self._cell_fn(*parts)[0]) if self._cell_grad is None else self._custom(parts)
        for tensor, before in zip(computed, state):
            tensor.set_shape(tensor.shape.merge_with(before.shape))
        return computed

    def as_state(self, tensors):
        """A structure like the state's."""
        return tf.nest.pack_sequence_as(self._parts[1], tensors)

    def _custom(self, parts):
        """The new state, with the gradient that `cell_grad` says."""

        @tf.custom_gradient
        def computed(*tensors):
            packed = tf.nest.pack_sequence_as(parts, list(tensors))
            state, extras = self._cell_fn(*packed)

            def gradients(*given):
                # a function of its own: it may take gradients itself, and this is inside of a loop's
                known = [packed, extras, self.as_state(list(given))]
                flat = tf.nest.flatten(known)

                def body(*inner):
                    for tensor, outer in zip(inner, flat):
                        tensor.set_shape(outer.shape)
                    (theta, state0, inputs), more, after = tf.nest.pack_sequence_as(known, list(inner))
                    said = self._cell_grad(theta, state0, inputs, more, after)
                    likes = zip(said, (theta, state0, inputs))
                    pairs = [pair for part, like in likes for pair in zip(_like(part, like), tf.nest.flatten(like))]
                    return [tf.zeros_like(x) if gradient is None else gradient for gradient, x in pairs]

                function = names.load("tensorflow.python.framework.function.Defun")
                return function(*(tensor.dtype for tensor in flat))(body)(*flat)

            return tf.nest.flatten(state), gradients

        new = computed(*map(tf.convert_to_tensor, tf.nest.flatten(parts)))
        return list(new) if isinstance(new, (list, tuple)) else [new]


def _like(part, structure):
    return [None] * len(tf.nest.flatten(structure)) if part is None else tf.nest.flatten(part)


def functional_rnn(
    cell: Any, inputs: Any, sequence_length: Any = None, initial_state: Any = None, dtype: Any = None,
    time_major: bool = False, scope: Any = None, use_tpu: bool = False, reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """tf.nn.dynamic_rnn; with `reverse`, from the last time to the first.

    Args:
        cell: RNNCell.
        inputs: [batch, time, depth], [time, batch, depth] with `time_major`.
        sequence_length: int [batch], or None; outputs beyond are 0.
        initial_state: state, zeros if None.
        dtype: of a state of zeros.
        time_major: bool.
        scope: variable scope, "rnn" by default.
        use_tpu: no effect here.
        reverse: bool; the cell then runs over what lies beyond a row's length too, as far as the longest.
    """
    del use_tpu
    if not reverse:
        return tf.nn.dynamic_rnn(
            cell, inputs, sequence_length, initial_state, dtype, time_major=time_major, scope=scope
        )
    inputs = inputs if time_major else transpose_batch_time(inputs)
    times = tf.shape(inputs)[0]
    length = times if sequence_length is None else tf.reduce_max(tf.cast(sequence_length, tf.int32))
    backwards = tf.reverse(inputs[:length], [0])
    outputs, state = tf.nn.dynamic_rnn(cell, backwards, None, initial_state, dtype, time_major=True, scope=scope)
    outputs = tf.pad(tf.reverse(outputs, [0]), [[0, times - length], [0, 0], [0, 0]])
    outputs.set_shape(inputs.shape[:2].concatenate(outputs.shape[2:]))
    outputs = transpose_batch_time(outputs)
    if sequence_length is not None:
        outputs *= tf.sequence_mask(sequence_length, times, outputs.dtype)[:, :, None]
    return transpose_batch_time(outputs) if time_major else outputs, state


def bidirectional_functional_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, initial_state_fw: Any = None, initial_state_bw: Any = None,
    dtype: Any = None, sequence_length: Any = None, time_major: bool = False, use_tpu: bool = False,
    fast_reverse: bool = False, scope: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """tf.nn.bidirectional_dynamic_rnn; `fast_reverse` reverses all rows as a whole, whatever their lengths.

    Returns:
        ((outputs forwards, outputs backwards), (last state forwards, last state backwards)).
    """
    if not fast_reverse:
        return tf.nn.bidirectional_dynamic_rnn(
            cell_fw, cell_bw, inputs, sequence_length, initial_state_fw, initial_state_bw, dtype,
            time_major=time_major, scope=scope,
        )  # fmt: skip
    with tf.variable_scope(scope or "bidirectional_rnn"):
        ways = [
            functional_rnn(
                cell, inputs, sequence_length, state, dtype, time_major, scope=name, use_tpu=use_tpu, reverse=back
            )
            for cell, state, name, back in (
                (cell_fw, initial_state_fw, "fw", False),
                (cell_bw, initial_state_bw, "bw", True),
            )
        ]
    (forwards, last_fw), (backwards, last_bw) = ways
    return (forwards, backwards), (last_fw, last_bw)
