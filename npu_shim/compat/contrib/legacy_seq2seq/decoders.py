"""tf.contrib.legacy_seq2seq: decoders unrolled step by step over lists (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.rnn.linear import linear


def rnn_decoder(
    decoder_inputs: Any, initial_state: Any, cell: Any, loop_function: Any = None, scope: Any = None
) -> tuple[list[tf.Tensor], Any]:
    """Runs a cell over inputs, or over `loop_function` of its outputs.

    Args:
        decoder_inputs: list of [batch, depth].
        initial_state: the cell's first state.
        cell: an RNNCell.
        loop_function: optional, (output, step) -> next input; the first input is the given one.
        scope: variable scope, "rnn_decoder" by default.

    Returns:
        (list of outputs, last state).
    """
    with tf.variable_scope(scope or "rnn_decoder"):
        state, outputs = initial_state, []
        for step, given in enumerate(decoder_inputs):
            if loop_function is not None and outputs:
                with tf.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], step)
            if step:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(given, state)
            outputs.append(output)
        return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, dtype: Any = tf.float32, scope: Any = None
) -> tuple[list[tf.Tensor], Any]:
    """Encodes one list with a cell, and decodes another from its state with a copy of the cell.

    Returns:
        (list of outputs, last state).
    """
    import copy

    with tf.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = tf.nn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Any,
    decoder_inputs: Any,
    cell: Any,
    loop_function: Any = None,
    dtype: Any = tf.float32,
    scope: Any = None,
) -> tuple[list[tf.Tensor], Any]:
    """As `basic_rnn_seq2seq`, with one set of variables for both."""
    with tf.variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = tf.nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=scope)
        tf.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function=loop_function, scope=scope)


def attention_decoder(
    decoder_inputs: Any,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Any = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[tf.Tensor], Any]:  # fmt: skip
    """Runs a cell that attends to states (Vinyals et al. 2015).

    Args:
        decoder_inputs: list of [batch, depth].
        initial_state: the cell's first state.
        attention_states: [batch, length, size].
        cell: an RNNCell.
        output_size: int, the cell's by default.
        num_heads: int.
        loop_function: optional, (output, step) -> next input.
        dtype: of the first attention; the inputs' by default.
        scope: variable scope, "attention_decoder" by default.
        initial_state_attention: whether the first attention is computed from the initial state; zeros otherwise.

    Returns:
        (list of outputs [batch, output_size], last state).

    Raises:
        ValueError: there is no input or head, or a size is not known.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    if attention_states.shape.as_list()[2] is None:
        raise ValueError("Shape[2] of attention_states must be known: %s" % attention_states.shape)
    output_size = cell.output_size if output_size is None else output_size
    with tf.variable_scope(scope or "attention_decoder", dtype=dtype) as scope:
        attend = _heads(attention_states, num_heads, scope.dtype)
        state, outputs = initial_state, []
        attentions = attend.zeros()
        if initial_state_attention:
            attentions = attend(initial_state)
        for step, given in enumerate(decoder_inputs):
            if step:
                tf.get_variable_scope().reuse_variables()
            if loop_function is not None and outputs:
                with tf.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], step)  # what it replaces may be None
            depth = given.shape.with_rank(2).as_list()[1]
            if depth is None:
                raise ValueError("Could not infer input size from input: %s" % given.name)
            output, state = cell(linear([given, *attentions], depth), state)
            with tf.variable_scope(
                tf.get_variable_scope(), reuse=True if not step and initial_state_attention else None
            ):
                attentions = attend(state)
            with tf.variable_scope("AttnOutputProjection"):
                outputs.append(linear([output, *attentions], output_size))
        return outputs, state


def _heads(states, count, dtype):
    """Returns a callable from a query to the attention of each head, [batch, size]."""
    length = states.shape.as_list()[1] or tf.shape(states)[1]
    size = states.shape.as_list()[2]
    hidden = tf.reshape(states, [-1, length, 1, size])
    keys, vectors = [], []
    for head in range(count):
        kernel = tf.get_variable("AttnW_%d" % head, [1, 1, size, size], dtype)
        keys.append(tf.nn.conv2d(hidden, kernel, [1, 1, 1, 1], "SAME"))
        vectors.append(tf.get_variable("AttnV_%d" % head, [size], dtype))

    class Heads:
        def zeros(self):
            zeros = [tf.zeros(tf.stack([tf.shape(states)[0], size]), dtype) for _ in range(count)]
            for zero in zeros:
                zero.set_shape([None, size])
            return zeros

        def __call__(self, query):
            query = tf.concat(tf.nest.flatten(query), 1)
            return [self._one(head, query) for head in range(count)]

        def _one(self, head, query):
            with tf.variable_scope("Attention_%d" % head):
                y = tf.cast(tf.reshape(linear(query, size), [-1, 1, 1, size]), dtype)
                weights = tf.nn.softmax(tf.reduce_sum(vectors[head] * tf.tanh(keys[head] + y), [2, 3]))
                attended = tf.reduce_sum(tf.reshape(weights, [-1, length, 1, 1]) * hidden, [1, 2])
                return tf.reshape(attended, [-1, size])

    return Heads()


def sequence_loss_by_example(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """Weighted cross entropy of a list of steps.

    Args:
        logits: list of [batch, classes].
        targets: list of int [batch].
        weights: list of float [batch].
        average_across_timesteps: whether to divide by the sum of the weights.
        softmax_loss_function: optional, (labels=, logits=) -> loss; its labels may have any shape.
        name: the name scope.

    Returns:
        [batch].

    Raises:
        ValueError: the lists are not equally long.
    """
    if not len(targets) == len(logits) == len(weights):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same %d, %d, %d."
            % (len(logits), len(weights), len(targets))
        )
    loss = softmax_loss_function or _sparse_loss
    with tf.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        total = tf.add_n([
            loss(labels=t, logits=x) * w for x, t, w in zip(logits, targets, weights)
        ])  # fmt: skip
        return total / (tf.add_n(list(weights)) + 1e-12) if average_across_timesteps else total


def _sparse_loss(labels: Any, logits: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, [-1]), logits=logits)


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """The sum of `sequence_loss_by_example`, divided by the batch size on request; a scalar."""
    with tf.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        cost = tf.reduce_sum(
            sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        )
        return cost / tf.cast(tf.shape(targets[0])[0], cost.dtype) if average_across_batch else cost
