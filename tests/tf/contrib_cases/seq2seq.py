"""tf.contrib.seq2seq and tf.contrib.legacy_seq2seq."""

import numpy as np

from . import case, values


def _memory(tf):
    return tf.constant(values("memory", 3, 5, 4)), tf.constant([5, 2, 4])


def _decode(tf, contrib, cell, helper, state, **kwargs):
    layer = tf.layers.Dense(7, name="out", use_bias=False)
    decoder = contrib.seq2seq.BasicDecoder(cell, helper, state, layer)
    outputs, last, lengths = contrib.seq2seq.dynamic_decode(decoder, **kwargs)
    last = getattr(last, "cell_state", last)
    return outputs.rnn_output, outputs.sample_id, last, lengths


def _training(tf, contrib, make, **kwargs):
    memory, lengths = _memory(tf)
    cell = contrib.seq2seq.AttentionWrapper(tf.nn.rnn_cell.LSTMCell(6), make(memory, lengths), **kwargs)
    helper = contrib.seq2seq.TrainingHelper(tf.constant(values("in", 3, 4, 2)), tf.constant([4, 1, 3]))
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), impute_finished=True)


@case
def bahdanau(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauAttention(5, m, n), attention_layer_size=3)


@case
def bahdanau_normalized(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauAttention(5, m, n, normalize=True))


@case
def luong_scaled(tf, contrib):
    return _training(
        tf, contrib, lambda m, n: contrib.seq2seq.LuongAttention(6, m, n, scale=True), output_attention=False
    )


@case
def luong_without_lengths(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.LuongAttention(6, m), attention_layer_size=4)


@case
def monotonic(tf, contrib):
    out = []
    for mode in ("parallel", "recursive", "hard"):
        with tf.variable_scope(mode):
            out.append(_training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauMonotonicAttention(
                5, m, n, normalize=True, score_bias_init=-1.0, mode=mode)))  # noqa: B023  # fmt: skip
    out.append(_training(tf, contrib, lambda m, n: contrib.seq2seq.LuongMonotonicAttention(6, m, n, scale=True)))
    return out


@case
def two_mechanisms(tf, contrib):
    def make(m, n):
        return [contrib.seq2seq.BahdanauAttention(5, m, n), contrib.seq2seq.LuongAttention(6, m, n)]

    return _training(tf, contrib, make, attention_layer_size=[3, 2])


@case
def alignment_history(tf, contrib):
    memory, lengths = _memory(tf)
    mechanism = contrib.seq2seq.LuongAttention(6, memory, lengths)
    cell = contrib.seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(6), mechanism, alignment_history=True)
    state, outputs = cell.zero_state(3, tf.float32), []
    for step in range(3):
        output, state = cell(tf.constant(values("step%d" % step, 3, 2)), state)
        outputs.append(output)
    return outputs, state.alignments, state.attention, state.time, state.alignment_history.stack()


@case
def greedy(tf, contrib):
    embedding = tf.get_variable("embedding", [7, 4])
    helper = contrib.seq2seq.GreedyEmbeddingHelper(embedding, [1, 2, 3], 0)
    cell = tf.nn.rnn_cell.GRUCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), maximum_iterations=6)


@case
def training_time_major(tf, contrib):
    inputs = tf.constant(values("in", 4, 3, 2))
    helper = contrib.seq2seq.TrainingHelper(inputs, tf.constant([0, 4, 2]), time_major=True)
    cell = tf.nn.rnn_cell.BasicLSTMCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), output_time_major=True)


@case
def scheduled_always_and_never(tf, contrib):
    out = []
    for probability in (0.0, 1.0):
        inputs = tf.constant(values("in", 3, 4, 6))
        helper = contrib.seq2seq.ScheduledOutputTrainingHelper(
            inputs, tf.constant([4, 1, 3]), tf.constant(probability), auxiliary_inputs=tf.constant(values("a", 3, 4, 2))
        )
        with tf.variable_scope("p%d" % probability):
            cell = tf.nn.rnn_cell.GRUCell(6)
            decoder = contrib.seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32))
            out.append(contrib.seq2seq.dynamic_decode(decoder))
    return out


@case
def scheduled_embedding_never(tf, contrib):
    embedding = tf.get_variable("embedding", [7, 2])
    helper = contrib.seq2seq.ScheduledEmbeddingTrainingHelper(
        tf.constant(values("in", 3, 4, 2)), tf.constant([4, 1, 3]), embedding, tf.constant(0.0)
    )
    cell = tf.nn.rnn_cell.GRUCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32))


@case
def custom_and_inference_helpers(tf, contrib):
    cell = tf.nn.rnn_cell.GRUCell(3)
    start = tf.constant(values("start", 2, 3))
    inference = contrib.seq2seq.InferenceHelper(
        lambda outputs: outputs, [3], tf.float32, start, lambda samples: tf.reduce_sum(samples, 1) > 2.0
    )
    custom = contrib.seq2seq.CustomHelper(
        lambda: (tf.fill([2], False), start),
        lambda time, outputs, state: tf.cast(tf.argmax(outputs, 1), tf.int32),
        lambda time, outputs, state, sample_ids: (sample_ids > 1, outputs * 2.0, state),
    )
    return [
        contrib.seq2seq.dynamic_decode(
            contrib.seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32)), maximum_iterations=5
        )
        for helper in (inference, custom)
    ]


def _beam(tf, contrib, length_penalty, coverage_penalty, history):
    s2s, width = contrib.seq2seq, 4
    unknown = (tf.placeholder_with_default(t, [None, *t.shape.as_list()[1:]]) for t in _memory(tf))
    memory, lengths = (s2s.tile_batch(t, width) for t in unknown)
    mechanism = s2s.BahdanauAttention(5, memory, lengths)
    cell = s2s.AttentionWrapper(tf.nn.rnn_cell.LSTMCell(6), mechanism, alignment_history=history)
    decoder = s2s.BeamSearchDecoder(
        cell, tf.get_variable("embedding", [7, 4]), tf.placeholder_with_default([1, 2, 3], [None]), 0,
        cell.zero_state(3 * width, tf.float32), width,
        tf.layers.Dense(7, name="out"), length_penalty, coverage_penalty,
    )  # fmt: skip
    outputs, state, lengths = s2s.dynamic_decode(decoder, maximum_iterations=8)
    out = [
        outputs.predicted_ids,
        outputs.beam_search_decoder_output,
        state.log_probs,
        state.lengths,
        state.finished,
        lengths,
    ]
    return out + ([state.cell_state.alignment_history] if history else [])


@case
def beam(tf, contrib):
    return _beam(tf, contrib, 0.0, 0.0, False)


@case
def beam_with_penalties(tf, contrib):
    return _beam(tf, contrib, 0.8, 0.3, False)


@case
def beam_with_history(tf, contrib):
    return _beam(tf, contrib, 0.5, 0.0, True)


@case
def gather_tree(tf, contrib):
    ids = tf.constant(np.random.RandomState(0).randint(0, 5, [6, 3, 4]), tf.int32)
    parents = tf.constant(np.random.RandomState(1).randint(0, 4, [6, 3, 4]), tf.int32)
    return contrib.seq2seq.gather_tree(ids, parents, [6, 3, 0], 2)


@case
def sequence_loss(tf, contrib):
    logits, targets = tf.constant(values("logits", 3, 4, 5)), tf.constant([[0, 1, 2, 3], [4, 3, 2, 1], [1, 1, 1, 1]])
    weights = tf.constant([[1.0, 1, 1, 0], [1, 0.5, 0, 0], [0, 0, 0, 0]])
    flags = ["average_across_timesteps", "average_across_batch", "sum_over_timesteps", "sum_over_batch"]
    out = []
    for chosen in ("1100", "1000", "0100", "0000", "0011", "0010", "0001", "1001", "0110"):
        options = {flag: on == "1" for flag, on in zip(flags, chosen)}
        out.append(contrib.seq2seq.sequence_loss(logits, targets, weights, **options))
    return out


@case
def legacy_seq2seq(tf, contrib):
    s2s, cell = contrib.legacy_seq2seq, tf.nn.rnn_cell.GRUCell
    inputs = [tf.constant(values("in%d" % i, 3, 4)) for i in range(3)]
    states = tf.constant(values("states", 3, 5, 6))
    first = tf.constant(values("first", 3, 6))
    targets, weights = [tf.constant([0, 1, 2])] * 3, [tf.constant([1.0, 0.5, 0.0])] * 3
    outputs, state = s2s.attention_decoder(inputs, first, states, cell(6), num_heads=2, output_size=4)
    attended = s2s.attention_decoder(inputs, first, states, cell(6), scope="a", initial_state_attention=True)
    return [
        outputs,
        state,
        attended,
        s2s.rnn_decoder(inputs, first, cell(6)),
        s2s.basic_rnn_seq2seq(inputs, inputs, cell(6)),
        s2s.tied_rnn_seq2seq(inputs, inputs, cell(4), loop_function=lambda output, i: output * 2),
        s2s.sequence_loss_by_example(outputs, targets, weights),
        s2s.sequence_loss(outputs, targets, weights),
    ]


@case
def legacy_embedding(tf, contrib):
    s2s, cell = contrib.legacy_seq2seq, tf.nn.rnn_cell.GRUCell
    encoded = [tf.constant([0, 1, 3]), tf.constant([2, 2, 0])]
    decoded = [tf.constant([i, 1, 4]) for i in range(3)]
    first, states = tf.constant(values("first", 3, 6)), tf.constant(values("states", 3, 5, 6))
    projection = tf.constant(values("w", 6, 5)), tf.constant(values("b", 5))
    feed = tf.placeholder_with_default(True, [])

    def bucket(x, y):
        return s2s.embedding_rnn_seq2seq(x, y, cell(6), 4, 5, 2, scope="bucket")

    outputs, losses = s2s.model_with_buckets(encoded, decoded, decoded, [tf.ones(3)] * 3, [(1, 2), (2, 3)], bucket)
    many = s2s.one2many_rnn_seq2seq(
        encoded, {"a": decoded, "b": decoded[:2]}, cell(6), {"a": cell(6), "b": cell(6)}, 4, {"a": 5, "b": 5}, 2
    )
    return [
        s2s.embedding_rnn_decoder(decoded, first, cell(6), 5, 3),
        s2s.embedding_rnn_decoder(decoded, first, cell(6), 5, 3, projection, True, False, scope="fed"),
        s2s.embedding_rnn_seq2seq(encoded, decoded, cell(6), 4, 5, 2),
        s2s.embedding_rnn_seq2seq(encoded, decoded, cell(6), 4, 5, 2, feed_previous=feed, scope="chosen"),
        s2s.embedding_tied_rnn_seq2seq(encoded, decoded, cell(6), 5, 2, 3),
        s2s.embedding_attention_decoder(decoded, first, states, cell(6), 5, 3, 2, 4),
        s2s.embedding_attention_seq2seq(encoded, decoded, cell(6), 4, 5, 2, feed_previous=feed),
        s2s.embedding_attention_seq2seq(encoded, decoded, cell(6), 4, 5, 2, 1, projection, True, scope="projected"),
        many,
        outputs,
        losses,
    ]
