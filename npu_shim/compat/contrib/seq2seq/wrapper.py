"""AttentionWrapper of tf.contrib.seq2seq: a cell that attends to a memory (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.attention import AttentionMechanism
from npu_shim.compat.contrib.seq2seq.scores import _dim

_FIELDS = ["cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"]


class AttentionWrapperState(collections.namedtuple("AttentionWrapperState", _FIELDS)):
    """The state of an AttentionWrapper.

    Attributes:
        cell_state: the wrapped cell's state.
        attention: [batch, attention size], as emitted last.
        time: int32 scalar, the number of steps taken.
        alignments: [batch, memory time], or a tuple, one for each mechanism.
        alignment_history: a TensorArray of alignments, a tuple of them, or ().
        attention_state: the state(s) of the mechanism(s).
    """

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Returns the state with some fields replaced; a tensor that replaces one must fit its static shape."""

        def fitting(old, new):
            if isinstance(old, tf.Tensor) and isinstance(new, tf.Tensor):
                if not old.shape.is_compatible_with(new.shape):
                    raise ValueError(
                        "The shape of the AttentionWrapperState is expected to be %s, is %s" % (old.shape, new.shape)
                    )
                new.set_shape(old.shape)
            return new

        return tf.nest.map_structure(fitting, self, self._replace(**kwargs))


class AttentionWrapper(tf.nn.rnn_cell.RNNCell):
    """Wraps a cell with one attention mechanism or several.

    Args:
        cell: an RNNCell.
        attention_mechanism: an AttentionMechanism, or a list of them.
        attention_layer_size: int or list of int, the depth of a layer over cell output and context; without it,
            the context is the attention.
        alignment_history: whether the state keeps the alignments of all steps.
        cell_input_fn: (inputs, attention) -> the cell's inputs, a concatenation by default.
        output_attention: True for attention as output, False for the cell's output.
        initial_cell_state: optional, used by `zero_state`.
        name: of the layer.
        attention_layer: optional layer or list of layers, instead of `attention_layer_size`.
        attention_fn: (mechanism, cell output, attention state, attention layer) -> (attention, alignments, next state).
        dtype: of the layers, float32 by default.

    Raises:
        TypeError: a mechanism is not an AttentionMechanism, or `cell_input_fn` is not callable.
        ValueError: layers are given in both ways, or their number is not that of the mechanisms.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Any = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
        attention_layer: Any = None,
        attention_fn: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype)
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._attention_mechanisms = tuple(attention_mechanism) if self._is_multi else (attention_mechanism,)
        for mechanism in self._attention_mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(
                    "attention_mechanism must be an AttentionMechanism, saw type: %s" % type(mechanism).__name__
                )
        if cell_input_fn is None:
            cell_input_fn = lambda inputs, attention: tf.concat([inputs, attention], -1)  # noqa: E731
        elif not callable(cell_input_fn):
            raise TypeError("cell_input_fn must be callable, saw type: %s" % type(cell_input_fn).__name__)
        self._attention_layers = self._layers(attention_layer_size, attention_layer, dtype)
        self._cell = cell
        self._attention_layer_size = sum(self._depths())
        self._attention_fn = attention_fn or _compute_attention
        self._cell_input_fn = cell_input_fn
        self._output_attention = output_attention
        self._alignment_history = alignment_history
        self._initial_cell_state = None
        if initial_cell_state is not None:
            self._initial_cell_state = tf.nest.map_structure(
                lambda s: tf.identity(s, name="check_initial_cell_state"), initial_cell_state
            )

    def _layers(self, sizes, layers, dtype):
        count = len(self._attention_mechanisms)
        if sizes is not None and layers is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        given = layers if sizes is None else sizes
        if given is None:
            return None
        given = tuple(given) if isinstance(given, (list, tuple)) else (given,)
        if len(given) != count:
            raise ValueError(
                "If provided, attention_layer_size and attention_layer must contain exactly one entry per "
                "attention_mechanism, saw: %d vs %d" % (len(given), count)
            )
        if sizes is None:
            return given
        return tuple(
            tf.layers.Dense(n, name="attention_layer", use_bias=False, dtype=dtype or tf.float32) for n in given
        )

    def _depths(self):
        for index, mechanism in enumerate(self._attention_mechanisms):
            depth = int(mechanism.values.shape[-1])
            if self._attention_layers is not None:
                seen = tf.TensorShape([None, self._cell.output_size + depth])
                depth = int(self._attention_layers[index].compute_output_shape(seen)[-1])
            yield depth

    def _one_or_all(self, items):
        items = tuple(items)
        return items if self._is_multi else items[0]

    @property
    def output_size(self) -> Any:
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        mechanisms = self._attention_mechanisms
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            time=tf.TensorShape([]),
            attention=self._attention_layer_size,
            alignments=self._one_or_all(m.alignments_size for m in mechanisms),
            attention_state=self._one_or_all(m.state_size for m in mechanisms),
            alignment_history=self._one_or_all(
                m.alignments_size if self._alignment_history else () for m in mechanisms
            ),
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the state before the first step; with a beam search, `batch_size` is batch * beam width.

        Raises:
            ValueError: the memory of a mechanism is known to have another batch size.
        """
        with tf.name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            cell_state = self._initial_cell_state
            if cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            batch_size = self._checked_batch(cell_state, batch_size)
            mechanisms = self._attention_mechanisms
            first = [m.initial_alignments(batch_size, dtype) for m in mechanisms]
            return AttentionWrapperState(
                cell_state=cell_state,
                time=tf.zeros([], tf.int32),
                attention=_zeros(batch_size, self._attention_layer_size, dtype),
                alignments=self._one_or_all(first),
                attention_state=self._one_or_all(m.initial_state(batch_size, dtype) for m in mechanisms),
                alignment_history=self._one_or_all(self._history(a, dtype) for a in first),
            )

    def _history(self, alignments, dtype):
        if not self._alignment_history:
            return ()
        return tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=alignments.shape)

    def _checked_batch(self, cell_state, batch_size):
        """The batch size, after a check that the memories have it; the cell state's, where one was given."""
        state = tf.nest.flatten(cell_state)[-1]
        batch_size = _dim(state, 0) if self._initial_cell_state is not None else batch_size
        message = (
            "AttentionWrapper %s: the memory has another batch size than zero_state was asked for. For a "
            "BeamSearchDecoder, tile the memory with tile_batch, and ask for batch_size * beam_width." % self.name
        )
        checks = [tf.assert_equal(m.batch_size, batch_size, message=message) for m in self._attention_mechanisms]
        with tf.control_dependencies([check for check in checks if check is not None]):
            return batch_size if isinstance(batch_size, int) else tf.identity(batch_size)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns (output [batch, output_size], next AttentionWrapperState).

        Raises:
            TypeError: `state` is not an AttentionWrapperState.
        """
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                "Expected state to be instance of AttentionWrapperState. Received type %s instead." % type(state)
            )
        cell_output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        states, histories = state.attention_state, state.alignment_history
        if not self._is_multi:
            states, histories = [states], [histories]
        attentions, alignments, next_states = zip(*[
            self._attention_fn(
                mechanism, cell_output, states[index], self._attention_layers[index] if self._attention_layers else None
            )
            for index, mechanism in enumerate(self._attention_mechanisms)
        ])  # fmt: skip
        if self._alignment_history:
            histories = [h.write(state.time, a) for h, a in zip(histories, alignments)]
        attention = tf.concat(attentions, 1)
        next_state = AttentionWrapperState(
            cell_state=cell_state,
            attention=attention,
            time=state.time + 1,
            alignments=self._one_or_all(alignments),
            alignment_history=self._one_or_all(histories),
            attention_state=self._one_or_all(next_states),
        )
        return (attention if self._output_attention else cell_output), next_state


def _compute_attention(attention_mechanism, cell_output, attention_state, attention_layer):
    """(attention, alignments, next state): context = alignments . values, through the layer with the cell's output."""
    alignments, next_state = attention_mechanism(cell_output, state=attention_state)
    context = tf.squeeze(tf.matmul(tf.expand_dims(alignments, 1), attention_mechanism.values), [1])
    attention = context if attention_layer is None else attention_layer(tf.concat([cell_output, context], 1))
    return attention, alignments, next_state


def _zeros(batch_size, size, dtype):
    zeros = tf.zeros(tf.stack([batch_size, size]), dtype)
    zeros.set_shape([tf.get_static_value(tf.convert_to_tensor(batch_size)), size])
    return zeros
