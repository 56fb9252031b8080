"""tf.contrib.legacy_seq2seq: models over lists of symbols, with embeddings (behaviour of TensorFlow 1.15.5).

Symbols are int32 tensors [batch]. An `output_projection` is None or a pair of [output_size, symbols] and [symbols];
without one the outputs are projected to the number of symbols. `feed_previous` is a bool, or for whole models a scalar
bool tensor: where it is true, the decoder takes the first of its inputs and then the best symbol of its last output.
"""

from __future__ import annotations

import copy
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.legacy_seq2seq import decoders as lists
from npu_shim.compat.contrib.rnn import wrappers


def embedding_rnn_decoder(
    decoder_inputs: Any,
    initial_state: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> tuple[list[tf.Tensor], Any]:
    """Runs a cell over embedded symbols.

    Args:
        decoder_inputs: list of symbols.
        initial_state: the cell's first state.
        cell: an RNNCell.
        num_symbols: int, rows of the embedding.
        embedding_size: int.
        output_projection: what turns an output into symbols, for `feed_previous`; see above.
        feed_previous: bool.
        update_embedding_for_previous: whether gradients reach the embeddings of the decoder's own symbols.
        scope: variable scope, "embedding_rnn_decoder" by default.

    Returns:
        (list of outputs, last state).

    Raises:
        ValueError: the biases of the output projection are not one for each symbol.
    """
    with tf.variable_scope(scope or "embedding_rnn_decoder") as scope:
        _check_biases(output_projection, scope.dtype, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        following = _best_symbol(embedding, output_projection, update_embedding_for_previous)
        inputs = [tf.nn.embedding_lookup(embedding, symbols) for symbols in decoder_inputs]
        return lists.rnn_decoder(inputs, initial_state, cell, loop_function=following if feed_previous else None)


def embedding_rnn_seq2seq(
    encoder_inputs: Any,
    decoder_inputs: Any,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[list[tf.Tensor], Any]:
    """Encodes a list of symbols with a copy of a cell, and decodes another from its state.

    Args:
        encoder_inputs: list of symbols.
        decoder_inputs: list of symbols.
        cell: an RNNCell.
        num_encoder_symbols: int.
        num_decoder_symbols: int.
        embedding_size: int.
        output_projection: see above.
        feed_previous: bool, or scalar bool tensor.
        dtype: of the initial state; the scope's by default.
        scope: variable scope, "embedding_rnn_seq2seq" by default.

    Returns:
        (list of outputs, last state).
    """
    with tf.variable_scope(scope or "embedding_rnn_seq2seq") as scope:
        scope.set_dtype(dtype or scope.dtype)
        encoder = wrappers.EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        _, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=scope.dtype)
        if output_projection is None:
            cell = wrappers.OutputProjectionWrapper(cell, num_decoder_symbols)
        return _fed(feed_previous, lambda feed: embedding_rnn_decoder(
            decoder_inputs, state, cell, num_decoder_symbols, embedding_size, output_projection, feed,
        ))  # fmt: skip


def embedding_tied_rnn_seq2seq(
    encoder_inputs: Any,
    decoder_inputs: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_decoder_symbols: int | None = None,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[list[tf.Tensor], Any]:
    """As `embedding_rnn_seq2seq`, with one embedding and one set of variables for both lists.

    Args:
        encoder_inputs: list of symbols.
        decoder_inputs: list of symbols.
        cell: an RNNCell.
        num_symbols: int.
        embedding_size: int.
        num_decoder_symbols: int, how many of the symbols the outputs stand for; all by default.
        output_projection: see above.
        feed_previous: bool, or scalar bool tensor.
        dtype: of the initial state and the embedding; the scope's by default.
        scope: variable scope, "embedding_tied_rnn_seq2seq" by default.

    Returns:
        (list of outputs, last state).

    Raises:
        ValueError: the biases of the output projection are not one for each symbol.
    """
    with tf.variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as scope:
        dtype = scope.dtype
        _check_biases(output_projection, dtype, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size], dtype)
        encoded, decoded = (
            [tf.nn.embedding_lookup(embedding, symbols) for symbols in side]
            for side in (encoder_inputs, decoder_inputs)
        )
        if output_projection is None:
            cell = wrappers.OutputProjectionWrapper(cell, num_decoder_symbols or num_symbols)
        following = _best_symbol(embedding, output_projection, True)
        return _fed(feed_previous, lambda feed: lists.tied_rnn_seq2seq(
            encoded, decoded, cell, loop_function=following if feed else None, dtype=dtype,
        ))  # fmt: skip


def embedding_attention_decoder(
    decoder_inputs: Any,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[tf.Tensor], Any]:
    """As `embedding_rnn_decoder`, with the attention of `attention_decoder`, which has the other arguments.

    Returns:
        (list of outputs [batch, output_size], last state).

    Raises:
        ValueError: the biases of the output projection are not one for each symbol.
    """
    output_size = cell.output_size if output_size is None else output_size
    with tf.variable_scope(scope or "embedding_attention_decoder", dtype=dtype) as scope:
        _check_biases(output_projection, dtype or scope.dtype, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        following = _best_symbol(embedding, output_projection, update_embedding_for_previous)
        return lists.attention_decoder(
            [tf.nn.embedding_lookup(embedding, symbols) for symbols in decoder_inputs], initial_state,
            attention_states, cell, output_size=output_size, num_heads=num_heads,
            loop_function=following if feed_previous else None, initial_state_attention=initial_state_attention,
        )  # fmt: skip


def embedding_attention_seq2seq(
    encoder_inputs: Any,
    decoder_inputs: Any,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[tf.Tensor], Any]:
    """As `embedding_rnn_seq2seq`, with a decoder that attends to the encoder's outputs.

    Without an output projection the attention is as large as the number of the decoder's symbols.

    Returns:
        (list of outputs, last state).
    """
    with tf.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as scope:
        encoder = wrappers.EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        outputs, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=scope.dtype)
        attended = tf.concat([tf.reshape(output, [-1, 1, cell.output_size]) for output in outputs], 1)
        output_size = None
        if output_projection is None:
            cell, output_size = wrappers.OutputProjectionWrapper(cell, num_decoder_symbols), num_decoder_symbols
        return _fed(feed_previous, lambda feed: embedding_attention_decoder(
            decoder_inputs, state, attended, cell, num_decoder_symbols, embedding_size, num_heads, output_size,
            output_projection, feed, initial_state_attention=initial_state_attention,
        ))  # fmt: skip


def one2many_rnn_seq2seq(
    encoder_inputs: Any,
    decoder_inputs_dict: Any,
    enc_cell: Any,
    dec_cells_dict: Any,
    num_encoder_symbols: int,
    num_decoder_symbols_dict: Any,
    embedding_size: int,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> tuple[dict[str, list[tf.Tensor]], dict[str, Any]]:
    """Encodes a list of symbols, and decodes several others from its state (Luong et al. 2015).

    Args:
        encoder_inputs: list of symbols.
        decoder_inputs_dict: dict of a decoder's name to its list of symbols.
        enc_cell: an RNNCell.
        dec_cells_dict: dict of a decoder's name to its RNNCell.
        num_encoder_symbols: int.
        num_decoder_symbols_dict: dict of a decoder's name to its number of symbols.
        embedding_size: int.
        feed_previous: bool, or scalar bool tensor.
        dtype: of the initial state; the scope's by default.
        scope: variable scope, "one2many_rnn_seq2seq" by default.

    Returns:
        (dict of a decoder's name to its list of outputs, dict of a decoder's name to its last state).

    Raises:
        ValueError: there are not as many cells as decoders.
    """
    if len(dec_cells_dict) != len(decoder_inputs_dict):
        raise ValueError(
            "npu_shim: one2many_rnn_seq2seq: %d cells cannot decode %d lists"
            % (len(dec_cells_dict), len(decoder_inputs_dict))
        )
    outputs, states = {}, {}
    with tf.variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as scope:
        encoder = wrappers.EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=scope.dtype)
        for name, inputs in decoder_inputs_dict.items():
            symbols = num_decoder_symbols_dict[name]
            with tf.variable_scope("one2many_decoder_%s" % name):
                cell = wrappers.OutputProjectionWrapper(dec_cells_dict[name], symbols)
                outputs[name], states[name] = _fed(
                    feed_previous, _decoder_of(inputs, state, cell, symbols, embedding_size)
                )
    return outputs, states


def _decoder_of(inputs, state, cell, symbols, embedding_size):
    return lambda feed: embedding_rnn_decoder(inputs, state, cell, symbols, embedding_size, feed_previous=feed)


def model_with_buckets(
    encoder_inputs: Any,
    decoder_inputs: Any,
    targets: Any,
    weights: Any,
    buckets: Any,
    seq2seq: Callable[[Any, Any], Any],
    softmax_loss_function: Any = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[list[tf.Tensor]], list[tf.Tensor]]:
    """Builds a model once for each bucket of lengths, all with the same variables.

    Args:
        encoder_inputs: list of the encoder's inputs.
        decoder_inputs: list of the decoder's inputs.
        targets: list of int [batch].
        weights: list of float [batch].
        buckets: list of (number of the encoder's inputs, number of the decoder's), the largest last.
        seq2seq: function (encoder's inputs, decoder's inputs) -> (list of outputs, state).
        softmax_loss_function: optional, (labels=, logits=) -> loss.
        per_example_loss: whether losses are [batch] instead of scalars.
        name: name scope, "model_with_buckets" by default.

    Returns:
        (list of each bucket's outputs, list of each bucket's loss).

    Raises:
        ValueError: there are fewer inputs, targets or weights than the last bucket takes.
    """
    needed = {"encoder_inputs": (encoder_inputs, 0), "targets": (targets, 1), "weights": (weights, 1)}
    for what, (given, side) in needed.items():
        if len(given) < buckets[-1][side]:
            raise ValueError(
                "Length of %s (%d) must be at least that of last bucket (%d)." % (what, len(given), buckets[-1][side])
            )
    loss = lists.sequence_loss_by_example if per_example_loss else lists.sequence_loss
    outputs, losses = [], []
    with tf.name_scope(name, "model_with_buckets", [*encoder_inputs, *decoder_inputs, *targets, *weights]):
        for number, (encoded, decoded) in enumerate(buckets):
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if number else None):
                outputs.append(seq2seq(encoder_inputs[:encoded], decoder_inputs[:decoded])[0])
                losses.append(loss(
                    outputs[-1], targets[:decoded], weights[:decoded], softmax_loss_function=softmax_loss_function,
                ))  # fmt: skip
    return outputs, losses


def _check_biases(output_projection, dtype, num_symbols):
    if output_projection is not None:
        biases = tf.convert_to_tensor(output_projection[1], dtype=dtype)
        biases.shape.assert_is_compatible_with([num_symbols])


def _best_symbol(embedding, output_projection, update_embedding):
    """A loop function: the embedding of the symbol that the last output makes most likely."""

    def following(output, _):
        if output_projection is not None:
            output = tf.nn.xw_plus_b(output, output_projection[0], output_projection[1])
        embedded = tf.nn.embedding_lookup(embedding, tf.argmax(output, 1))
        return embedded if update_embedding else tf.stop_gradient(embedded)

    return following


def _fed(feed_previous, decode):
    """(Outputs, state) of `decode(feed)`, where a tensor chooses between both when it runs."""
    if isinstance(feed_previous, bool):
        return decode(feed_previous)
    structures = []

    def branch(feed):
        # the second branch has the variables of the first
        with tf.variable_scope(tf.get_variable_scope(), reuse=None if feed else True):
            structures.append(decode(feed))
        return tf.nest.flatten(structures[-1])

    flat = tf.cond(feed_previous, lambda: branch(True), lambda: branch(False))
    return tf.nest.pack_sequence_as(structures[0], flat)
