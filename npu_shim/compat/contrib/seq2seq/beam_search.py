"""Beam search of tf.contrib.seq2seq (behaviour of TensorFlow 1.15.5); penalties as in Wu et al. 2016.

Inside, states are [batch, beam, ...]; the cell sees [batch * beam, ...].
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.seq2seq.beam_step import BeamSearchDecoderState, beam_search_step
from npu_shim.compat.contrib.seq2seq.decoders import Decoder
from npu_shim.compat.contrib.seq2seq.helpers import _embedding_fn
from npu_shim.compat.contrib.seq2seq.scores import _dim


class FinalBeamSearchDecoderOutput(
    collections.namedtuple("FinalBeamDecoderOutput", ["predicted_ids", "beam_search_decoder_output"])
):
    """Ids of the hypotheses, best first, and all steps' BeamSearchDecoderOutput, both [time, batch, beam]."""


class BeamSearchDecoderOutput(
    collections.namedtuple("BeamSearchDecoderOutput", ["scores", "predicted_ids", "parent_ids"])
):
    """One step's scores, ids and parent beams, each [batch, beam]."""


class BeamSearchDecoder(Decoder):
    """Keeps the `beam_width` best hypotheses of each sequence.

    Args:
        cell: an RNNCell. With an AttentionWrapper, memory, lengths and initial state must have been tiled with
            `tile_batch`.
        embedding: a table [classes, depth], or ids -> embeddings.
        start_tokens: int32 [batch].
        end_token: int32 scalar.
        initial_state: (nested) tensors [batch * beam_width, ...].
        beam_width: int.
        output_layer: optional layer that turns the cell's output into logits.
        length_penalty_weight: float, 0 for none.
        coverage_penalty_weight: float, 0 for none.
        reorder_tensor_arrays: whether TensorArrays in the state (alignment histories) are sorted by the final beams.

    Raises:
        TypeError: `output_layer` is not a layer.
        ValueError: `start_tokens` is not a vector or `end_token` not a scalar.
    """

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:  # fmt: skip
        if output_layer is not None and not callable(output_layer):
            raise TypeError("output_layer must be a Layer, received: %s" % type(output_layer))
        self._cell = cell
        self._output_layer = output_layer
        self._reorder_tensor_arrays = reorder_tensor_arrays
        self._length_penalty_weight = length_penalty_weight
        self._coverage_penalty_weight = coverage_penalty_weight
        self._beam_width = beam_width
        self._embedding_fn = _embedding_fn(embedding)
        tokens = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        if tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = tf.size(tokens)
        self._static_batch = tokens.shape.as_list()[0]
        self._initial_cell_state = tf.nest.map_structure(self._split_state, initial_state, cell.state_size)
        self._start_tokens = tf.tile(tf.expand_dims(tokens, 1), [1, beam_width])
        self._start_inputs = self._embedding_fn(self._start_tokens)

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def tracks_own_finished(self) -> bool:
        return True

    @property
    def output_size(self) -> Any:
        beams = tf.TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(scores=beams, predicted_ids=beams, parent_ids=beams)

    @property
    def output_dtype(self) -> Any:
        dtype = tf.nest.flatten(self._initial_cell_state)[0].dtype
        return BeamSearchDecoderOutput(scores=dtype, predicted_ids=tf.int32, parent_ids=tf.int32)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Returns (finished, first inputs, first state): only the first of the equal beams is alive."""
        dtype = tf.nest.flatten(self._initial_cell_state)[0].dtype
        first = tf.zeros([self._batch_size], tf.int32)
        dead = dtype.as_numpy_dtype(-float("inf"))
        finished = tf.one_hot(first, self._beam_width, on_value=False, off_value=True, dtype=tf.bool)
        coverage = ()
        if self._coverage_penalty_weight != 0.0:
            coverage = tf.zeros_like(attention_probs(self._initial_cell_state))
        state = BeamSearchDecoderState(
            cell_state=self._initial_cell_state,
            log_probs=tf.one_hot(
                first, self._beam_width, on_value=dtype.as_numpy_dtype(0), off_value=dead, dtype=dtype
            ),
            finished=finished,
            lengths=tf.zeros([self._batch_size, self._beam_width], tf.int64),
            accumulated_attention_probs=coverage,
        )
        return finished, self._start_inputs, state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns (BeamSearchDecoderOutput, next state, next inputs, finished)."""
        with tf.name_scope(name, "BeamSearchDecoderStep", (time, inputs, state)):
            merged = tf.nest.map_structure(self._merge, inputs)
            cell_state = tf.nest.map_structure(self._merge_state, state.cell_state, self._cell.state_size)
            outputs, next_cell_state = self._cell(merged, cell_state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            logits = tf.nest.map_structure(self._split, outputs)
            next_cell_state = tf.nest.map_structure(self._split_state, next_cell_state, self._cell.state_size)
            probs = attention_probs(next_cell_state) if self._coverage_penalty_weight != 0.0 else None
            scores, ids, parents, next_state = beam_search_step(
                logits, next_cell_state, state, self._batch_size, self._beam_width, self._end_token,
                self._length_penalty_weight, self._coverage_penalty_weight, probs,
            )  # fmt: skip
            finished = next_state.finished
            next_inputs = tf.cond(tf.reduce_all(finished), lambda: self._start_inputs, lambda: self._embedding_fn(ids))
        return BeamSearchDecoderOutput(scores, ids, parents), next_state, next_inputs, finished

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Returns (FinalBeamSearchDecoderOutput, final state); predicted ids are [time, batch, beam], best first."""
        longest = tf.cast(tf.reduce_max(final_state.lengths, axis=1), tf.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorder_tensor_arrays:
            cell_state = tf.nest.map_structure(
                lambda t: self._sorted(t, outputs.parent_ids, final_state.lengths), final_state.cell_state
            )
            final_state = final_state._replace(cell_state=cell_state)
        return FinalBeamSearchDecoderOutput(beam_search_decoder_output=outputs, predicted_ids=ids), final_state

    def _sorted(self, array, parent_ids, lengths):
        """A TensorArray of [batch * beam, ...] as a tensor in the order of the final beams; others as they are."""
        if not isinstance(array, tf.TensorArray) or not array.element_shape.ndims:
            return array
        sizes = array.element_shape.as_list()
        if self._static_batch is not None and sizes[0] is not None and not self._sortable(sizes):
            return array
        return gather_tree_from_array(array.stack(), parent_ids, lengths)

    def _sortable(self, sizes):
        """As in 1.15.5, where scripts rely on it: a known [batch * beam, depth] is returned as a TensorArray."""
        flat = sizes[0] == self._static_batch * self._beam_width and (len(sizes) == 1 or sizes[1] is None)
        return flat or sizes[:2] == [self._static_batch, self._beam_width]

    def _merge(self, t):
        """[batch, beam, ...] -> [batch * beam, ...]."""
        static = None if self._static_batch is None else self._static_batch * self._beam_width
        merged = tf.reshape(t, tf.concat([[self._batch_size * self._beam_width], tf.shape(t)[2:]], 0))
        merged.set_shape(tf.TensorShape([static]).concatenate(t.shape[2:]))
        return merged

    def _split(self, t):
        """[batch * beam, ...] -> [batch, beam, ...]."""
        split = tf.reshape(t, tf.concat([[self._batch_size, self._beam_width], tf.shape(t)[1:]], 0))
        split.set_shape(tf.TensorShape([self._static_batch, self._beam_width]).concatenate(t.shape[1:]))
        return split

    def _merge_state(self, t, size):
        return t if isinstance(t, tf.TensorArray) or t.shape.ndims < 1 else self._merge(t)

    def _split_state(self, t, size):
        """As `_split`, and with the cell's own size last; scalars and TensorArrays stay."""
        if isinstance(t, tf.TensorArray):
            return t
        t = tf.convert_to_tensor(t)
        if t.shape.ndims is None:
            raise ValueError("Expected tensor (%s) to have known rank, but ndims == None." % t)
        if t.shape.ndims < 1:
            return t
        split = self._split(t)
        if not isinstance(size, tf.Tensor):
            split.set_shape(split.shape[:2].concatenate(size))
        return split


def attention_probs(cell_state: Any) -> Any:
    """Alignments [batch, beam, time] of a state, their mean where there are several.

    Raises:
        ValueError: no cell attends.
    """
    states = [cell_state] if hasattr(cell_state, "alignments") else list(cell_state)
    alignments = [s.alignments for s in states if hasattr(s, "alignments")]
    if not alignments:
        raise ValueError("coverage_penalty_weight must be 0.0 if no cell is attentional.")
    means = [tf.add_n(a) / len(a) if isinstance(a, tuple) else a for a in alignments]
    return means[0] if len(means) == 1 else tf.add_n(means) / len(means)


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeats each entry of (nested) tensors [batch, ...]: [batch * multiplier, ...], one entry's copies together."""
    with tf.name_scope(name, "tile_batch", [*tf.nest.flatten(t), multiplier]):
        return tf.nest.map_structure(lambda x: _tiled(tf.convert_to_tensor(x, name="t"), multiplier), t)


def _tiled(t, multiplier):
    if t.shape.ndims is None:
        raise ValueError("t must have statically known rank")
    tiling = [1, multiplier] + [1] * (t.shape.ndims - 1)
    tiled = tf.tile(tf.expand_dims(t, 1), tiling)
    tiled = tf.reshape(tiled, tf.concat([[tf.shape(t)[0] * multiplier], tf.shape(t)[1:]], 0))
    count = t.shape.as_list()[0]
    static = count * multiplier if count is not None and isinstance(multiplier, int) else None
    tiled.set_shape(tf.TensorShape([static]).concatenate(t.shape[1:]))
    return tiled


def gather_tree(
    step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: str | None = None
) -> tf.Tensor:
    """Follows the beams back from the last step.

    Args:
        step_ids: int32 [time, batch, beam].
        parent_ids: int32 [time, batch, beam], which beam of the step before each comes from.
        max_sequence_lengths: int32 [batch]; later ids become `end_token`.
        end_token: int32 scalar; all ids after the first one become it, too.
        name: the name scope.

    Returns:
        int32 [time, batch, beam], the whole sequences.
    """
    with tf.name_scope(name, "GatherTree", [step_ids, parent_ids]):
        step_ids, parent_ids = tf.convert_to_tensor(step_ids), tf.convert_to_tensor(parent_ids)
        end_token = tf.convert_to_tensor(end_token, step_ids.dtype)
        shape = tf.shape(step_ids)
        nothing = tf.fill(shape[1:], end_token)
        lengths = tf.expand_dims(tf.cast(max_sequence_lengths, tf.int32), 1)
        beams = tf.broadcast_to(tf.range(shape[2]), shape[1:])

        def back(later, step):
            time, ids, parents = step
            inside = tf.broadcast_to(time < lengths, shape[1:])
            beam = later[1]
            tokens = tf.where(inside, tf.gather(ids, beam, axis=1, batch_dims=1), nothing)
            return tokens, tf.where(inside, tf.gather(parents, beam, axis=1, batch_dims=1), beam)

        tokens, _ = tf.scan(
            back,
            (tf.range(shape[0]), step_ids, parent_ids),
            initializer=(nothing, beams),
            reverse=True,
            back_prop=False,
        )
        ended = tf.cumsum(tf.cast(tf.equal(tokens, end_token), tf.int32), axis=0, exclusive=True) > 0
        tokens = tf.where(ended, tf.fill(shape, end_token), tokens)
        tokens.set_shape(step_ids.shape)
        return tokens


def gather_tree_from_array(t: Any, parent_ids: Any, sequence_length: Any) -> tf.Tensor:
    """Sorts a stacked array by the final beams.

    Args:
        t: [time, batch * beam, ...] or [time, batch, beam, ...].
        parent_ids: int32 [time, batch, beam].
        sequence_length: int [batch, beam]; later steps keep their beam.

    Returns:
        A tensor of the shape of `t`.
    """
    time, batch, beam = (_dim(parent_ids, axis) for axis in range(3))
    same = tf.broadcast_to(tf.range(beam), [time, batch, beam])
    longest = tf.cast(tf.reduce_max(sequence_length, axis=1), tf.int32)
    beams = gather_tree(same, parent_ids, longest, beam + 1)
    inside = tf.transpose(tf.sequence_mask(sequence_length, maxlen=time), [2, 0, 1])
    beams = tf.where(inside, beams, same)
    rows = tf.reshape(t, [time, batch, beam, -1])
    return tf.reshape(tf.gather(rows, beams, axis=2, batch_dims=2), tf.shape(t))
