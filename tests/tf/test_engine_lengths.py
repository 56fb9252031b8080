"""Lengths that follow from what is fed: decoders that run as long as the longest sentence of a batch."""

import os
import re

import forked
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.options import engine as options
from npu_shim.xla import static_shapes

no_engine = pytest.mark.skipif(
    tf.__version__.startswith("1.") or not (options.has_jax() or options.interpreter())
    or not (options.has_jax() or os.environ.get("NPU_SHIM_NIGHTLY")),
    reason="needs TensorFlow 2.15 or later with JAX; in a worker: nightly",
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("patched", "control_flow_of_version_1")
ROWS, WORDS, STEPS = 3, 5, 9


def built(goes_on):
    """A decoder of sentences that end by their lengths, as dynamic_decode is one: (loss, outputs, train, feeds)."""
    x, lengths = tf.placeholder(tf.float32, [ROWS, WORDS], "x"), tf.placeholder(tf.int32, [ROWS], "lengths")
    w = tf.get_variable("w", [WORDS, WORDS], initializer=tf.initializers.orthogonal(seed=1))

    def step(time, finished, state, outputs):
        state = tf.where(finished, state, tf.tanh(tf.matmul(state, w)))
        outputs = outputs.write(time, state)
        return time + 1, tf.logical_or(finished, time + 1 >= lengths), state, outputs

    outputs = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[ROWS, WORDS])
    start = tf.constant(0), lengths <= 0, x, outputs
    outputs = tf.while_loop(lambda time, finished, *_: goes_on(time, finished), step, start)[-1].stack()
    loss = tf.reduce_mean(tf.square(outputs - 1.0))  # over all that was decoded: an element too many would show
    return loss, outputs, tf.train.GradientDescentOptimizer(0.5).minimize(loss), (x, lengths)


ENDS = [
    lambda time, finished: tf.logical_not(tf.reduce_all(finished)),
    lambda time, finished: tf.logical_and(time < STEPS, tf.logical_not(tf.reduce_all(finished))),  # a bound is no size
]
LENGTHS = [[2, 4, 1], [4, 4, 4], [1, 2, 1], [3, 1, 4]]


def trained(kind, ends):
    """(losses, decoded, weights at last, the session) of steps with different lengths."""
    with tf.Graph().as_default():
        loss, outputs, train, (x, lengths) = built(ends)
        value = np.linspace(-1, 1, ROWS * WORDS, dtype="f").reshape(ROWS, WORDS)
        config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_engine=kind)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            steps = [session.run([loss, outputs, train], {x: value, lengths: each})[:2] for each in LENGTHS]
            return steps, session.run(tf.trainable_variables()), session


@no_engine
@pytest.mark.parametrize("ends", ENDS, ids=["by lengths", "by lengths and a bound"])
def test_a_decoder_as_long_as_what_is_fed_trains_as_in_the_session(ends):
    wanted, weights, _ = trained("session", ends)
    found, own, session = trained("pjrt", ends)
    for (loss, outputs), (expected, decoded) in zip(found, wanted):
        assert outputs.shape == decoded.shape
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        np.testing.assert_allclose(outputs, decoded, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own, weights, rtol=1e-4, atol=1e-5)
    taken = [known for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    assert len(taken) == 1, [known.reason for known in vars(session)[engine.ENGINE].known.values()]
    assert len(taken[0].programs) == len({max(each) for each in LENGTHS})


@pytest.mark.parametrize("ends", ENDS, ids=["by lengths", "by lengths and a bound"])
def test_the_length_of_an_array_that_grows_is_not_that_at_which_it_starts(ends):
    with tf.Graph().as_default() as graph:
        _, outputs, _, _ = built(ends)
        shape = static_shapes.infer(graph.as_graph_def(), [outputs.name])[outputs.name]
    assert shape.as_list() == [None, ROWS, WORDS]


SCRIPT = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.contrib.rnn import GRUCell
from tensorflow.python.layers.core import Dense
import npu_bridge.npu_init

rows, words, size = 4, 24, 8
rng = np.random.RandomState(0)

def uniform(seed):
    return tf.random_uniform_initializer(-0.3, 0.3, seed=seed)

source, lengths = tf.placeholder(tf.int32, [rows, None]), tf.placeholder(tf.int32, [rows])
target = tf.placeholder(tf.int32, [rows, None])
with tf.variable_scope("s", initializer=uniform(1)):
    embedding = tf.get_variable("embedding", [words, size])
    outputs, states = tf.nn.bidirectional_dynamic_rnn(
        GRUCell(4), GRUCell(4), tf.nn.embedding_lookup(embedding, source), lengths, dtype=tf.float32)
    memory, state = tf.concat(outputs, -1), tf.concat(states, -1)
    projection = Dense(words, use_bias=False, kernel_initializer=uniform(2))
    shifted = tf.concat([tf.fill([rows, 1], 1), target[:, :-1]], 1)
    helper = seq2seq.TrainingHelper(tf.nn.embedding_lookup(embedding, shifted), lengths + 1)
    attention = seq2seq.LuongAttention(size, memory, memory_sequence_length=lengths, scale=True)
    cell = seq2seq.AttentionWrapper(GRUCell(size), attention, attention_layer_size=size)
    start = cell.zero_state(rows, tf.float32).clone(cell_state=state)
    training, _, _ = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, start, projection))
loss = seq2seq.sequence_loss(
    training.rnn_output, target, tf.sequence_mask(lengths + 1, tf.shape(target)[1], dtype=tf.float32))
train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
entry.parameter_map["precision_mode"].s = b"must_keep_origin_dtype"
entry.parameter_map["npu_shim_profile"].s = b"gpu"
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for longest in (6, 6, 4):
        given, wanted = np.zeros([rows, longest], np.int32), np.zeros([rows, longest + 1], np.int32)
        count = rng.randint(3, longest + 1, rows)
        count[0] = longest
        for row, length in enumerate(count):
            word = rng.randint(3, words, length)
            given[row, :length], wanted[row, :length], wanted[row, length] = word, word[::-1], 2
        print("loss %.7f" % session.run([loss, train], {source: given, lengths: count, target: wanted})[0])
    print("weights %.7f" % sum(np.abs(value).sum() for value in session.run(tf.trainable_variables())))
"""


@no_engine
@pytest.mark.slow
def test_an_attention_encoder_decoder_whose_lengths_are_fed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = ["npu-shim run --engine %s script.py" % kind for kind in ("session", "pjrt")]
    session, program = forked.run([(line, tmp_path) for line in lines])
    assert (session.status, program.status) == (0, 0), program.output
    assert len(re.findall("is one program on cpu.*compiled in", program.output)) == 2, program.output
    found, wanted = (re.findall(r"^(?:loss|weights) (\S+)$", done.output, re.MULTILINE) for done in (program, session))
    assert len(wanted) == 4
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-5)
