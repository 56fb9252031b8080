"""Decoders as interpreted steps, beside sessions, in the control flow of both versions."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step  # noqa: E402

from npu_shim.compat.contrib import seq2seq  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated")
ROWS, WORDS, SIZE, MOST, END = 2, 3, 4, 5, 2


def decoded(helper, state, attention=None, **options):
    """(Logits [rows, time, words], lengths [rows]) of a decoder."""
    draw = tf.random_uniform_initializer(-1.5, 1.5, seed=2)
    cell = tf.nn.rnn_cell.GRUCell(SIZE, kernel_initializer=draw)
    if attention is not None:
        memory = tf.get_variable("memory", [ROWS, 3, SIZE], initializer=tf.random_normal_initializer(seed=5))
        cell = seq2seq.AttentionWrapper(cell, attention(SIZE, memory, [3, 2]), attention_layer_size=SIZE)
        state = cell.zero_state(ROWS, tf.float32).clone(cell_state=state)
    layer = tf.layers.Dense(WORDS, use_bias=False, kernel_initializer=draw)
    decoder = seq2seq.BasicDecoder(cell, helper, state, layer)
    # else an iteration may draw before the one before it has
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, parallel_iterations=1, **options)
    return outputs.rnn_output, lengths


def sampled(embedding, given, lengths):
    """Scheduled sampling: an input is the given word, or one that is drawn."""
    return seq2seq.ScheduledEmbeddingTrainingHelper(
        tf.nn.embedding_lookup(embedding, given), lengths, embedding, 0.4, seed=3, scheduling_seed=4
    )


def greedy(embedding, given, lengths):
    return seq2seq.GreedyEmbeddingHelper(embedding, given[:, 0], END)


def drawn(embedding, given, lengths):
    return seq2seq.SampleEmbeddingHelper(embedding, given[:, 0], END, seed=5)


def of_outputs(embedding, given, lengths):
    """Scheduled sampling: an input is the given word, or made of the last output."""
    return seq2seq.ScheduledOutputTrainingHelper(
        tf.nn.embedding_lookup(embedding, given), lengths, 0.4, seed=3,
        next_inputs_fn=lambda logits: tf.matmul(tf.nn.softmax(logits), embedding),
    )  # fmt: skip


def losses(logits, lengths, wanted):
    """Of the words that a mask leaves, as `sequence_loss` has it, and of all that is decoded."""
    time = tf.shape(logits)[1]
    mask = tf.sequence_mask(lengths, time, dtype=tf.float32)
    return seq2seq.sequence_loss(logits, wanted[:, :time], mask), tf.reduce_mean(tf.square(logits - 1.0))


LIMITED = {"maximum_iterations": MOST}
# name -> (helper, options, whether how often it runs is said by the lengths)
DECODERS = {
    "greedy, ended by its words": (greedy, LIMITED, False),
    "greedy with attention": (greedy, {**LIMITED, "attention": seq2seq.LuongAttention}, False),
    "drawn with attention": (drawn, {**LIMITED, "attention": seq2seq.BahdanauAttention}, False),
    "scheduled sampling": (sampled, {}, True),
    "scheduled sampling with a limit": (sampled, LIMITED, False),
    "scheduled sampling of outputs": (of_outputs, {}, True),
    "scheduled sampling of outputs with a limit": (of_outputs, LIMITED, False),
}


@pytest.mark.by_day(
    "1-greedy, ended by its words", "1-scheduled sampling", "1-scheduled sampling with a limit",
    "2-greedy, ended by its words", "2-scheduled sampling",
)  # fmt: skip
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("version", [1, 2])
def test_decoders_are_those_of_a_session(version, name):
    helper, options, is_told = DECODERS[name]
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        x, lengths = tf.placeholder(tf.float32, [ROWS, SIZE]), tf.placeholder(tf.int32, [ROWS])
        words, wanted = (tf.placeholder(tf.int32, [ROWS, MOST]) for _ in range(2))
        embedding = tf.get_variable("embedding", [WORDS, SIZE], initializer=tf.random_normal_initializer(seed=4))
        logits, count = decoded(helper(embedding, words, lengths), x, **options)
        total = losses(logits, count, wanted)
        variables = tf.trainable_variables()
        gradients = [tf.convert_to_tensor(g) for g in tf.gradients(total, variables)]
        fetches = [count, *total, *gradients]
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            state = {variable.op.name: session.run(variable) for variable in tf.global_variables()}
            known = {lengths: np.int32([2, 4])}
            step = Step(graph, fetches, state, [x, words, wanted, lengths], known if is_told else {})
            seen, draw = set(), np.random.RandomState(0)
            for _ in range(12):
                feeds = {x: draw.randn(ROWS, SIZE), words: draw.randint(0, END, [ROWS, MOST])}
                feeds[wanted] = draw.randint(0, WORDS, [ROWS, MOST])
                feeds = {**{key: np.asarray(value, key.dtype.as_numpy_dtype) for key, value in feeds.items()}, **known}
                expected = session.run(fetches, feeds)
                seen.add(int(expected[0].max()))
                actual = step(feeds)
                np.testing.assert_array_equal(actual[0], expected[0])
                np.testing.assert_allclose(actual[1:3], expected[1:3], 1e-6)
                for variable, own, value in zip(variables, actual[3:], expected[3:]):
                    # XLA's tanh is a few roundings off TensorFlow's; the steps of a loop multiply them
                    np.testing.assert_allclose(own, value, 0, 2e-5 * np.abs(value).max(), err_msg=variable.name)
    assert name != "greedy, ended by its words" or len(seen) > 1  # data say how many words there are
