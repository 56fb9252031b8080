"""Scripts with decoders of `tf.contrib.seq2seq`, on TensorFlow 1.15.5 the real ones, in the session and the engine."""

import re

import forked
import numpy as np
import pytest

from npu_shim.options import engine

pytestmark = pytest.mark.skipif(
    not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"
)
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.python.layers.core import Dense
import npu_bridge.npu_init

tf.disable_control_flow_v2()
rows, words, size, most, end = 4, 6, 8, 7, 2
rng = np.random.RandomState(0)


def draw(seed):
    return tf.random_uniform_initializer(-1.0, 1.0, seed=seed)


def helper(embedding, given, lengths, kind):
    read = tf.nn.embedding_lookup(embedding, given)
    if kind == "greedy":
        return seq2seq.GreedyEmbeddingHelper(embedding, given[:, 0], end)
    if kind == "drawn":
        return seq2seq.SampleEmbeddingHelper(embedding, given[:, 0], end, seed=5)
    if kind == "sampled":
        return seq2seq.ScheduledEmbeddingTrainingHelper(read, lengths, embedding, 0.4, seed=3, scheduling_seed=4)
    return seq2seq.ScheduledOutputTrainingHelper(
        read, lengths, 0.4, seed=3, next_inputs_fn=lambda logits: tf.matmul(tf.nn.softmax(logits), embedding))


def trained(kind, limit, attention):
    tf.set_random_seed(1)
    x, lengths = tf.placeholder(tf.float32, [rows, size]), tf.placeholder(tf.int32, [rows])
    given, wanted = [tf.placeholder(tf.int32, [rows, most]) for _ in range(2)]
    embedding = tf.get_variable("embedding", [words, size], initializer=draw(5))
    cell, state = tf.nn.rnn_cell.GRUCell(size, kernel_initializer=draw(6)), x
    if attention:
        memory = tf.get_variable("memory", [rows, 3, size], initializer=draw(4))
        attention = attention(size, memory, tf.minimum(lengths, 3))
        cell = seq2seq.AttentionWrapper(cell, attention, attention_layer_size=size)
        state = cell.zero_state(rows, tf.float32).clone(cell_state=x)
    projection = Dense(words, use_bias=False, kernel_initializer=draw(7))
    decoder = seq2seq.BasicDecoder(cell, helper(embedding, given, lengths, kind), state, projection)
    outputs, _, count = seq2seq.dynamic_decode(decoder, parallel_iterations=1, maximum_iterations=limit)
    logits = outputs.rnn_output
    time = tf.shape(logits)[1]
    mask = tf.sequence_mask(count, time, dtype=tf.float32)
    loss = seq2seq.sequence_loss(logits, wanted[:, :time], mask) + tf.reduce_mean(tf.square(logits - 1.0))
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "NpuOptimizer"
    entry.parameter_map["precision_mode"].s = b"must_keep_origin_dtype"
    entry.parameter_map["npu_shim_profile"].s = b"gpu"
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        variables = tf.trainable_variables()
        before = session.run(variables)
        for _ in range(5):
            feeds = {x: rng.randn(rows, size), lengths: [7, 3, 5, 2]}
            feeds.update((fed, rng.randint(0, words, [rows, most])) for fed in (given, wanted))
            print("loss %.9g" % session.run([loss, train], feeds)[0])
        for value, first in zip(session.run(variables), before):
            print("change %.9g" % np.linalg.norm(value - first))


with tf.Graph().as_default():
    attentions = {"luong": seq2seq.LuongAttention, "bahdanau": seq2seq.BahdanauAttention}
    trained(sys.argv[1], 7 if "limited" in sys.argv else None, attentions.get(sys.argv[-1]))
"""
KINDS = ["greedy limited", "drawn limited bahdanau", "sampled", "sampled limited", "outputs limited luong"]


@pytest.mark.by_day("sampled limited")
@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_is_one_program_and_trains_as_in_the_session(tmp_path, kind):
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = ["npu-shim run --engine %s script.py %s" % (engine, kind) for engine in ("session", "pjrt")]
    session, program = forked.run([(line, tmp_path) for line in lines])
    assert (session.status, program.status) == (0, 0), program.output
    assert "is one program on cpu" in program.output, program.output
    actual, wanted = (_numbers(done.output, "loss") for done in (program, session))
    assert len(wanted) == 5
    np.testing.assert_allclose(actual, wanted, 1e-6)
    actual, wanted = (_numbers(done.output, "change") for done in (program, session))
    np.testing.assert_allclose(actual, wanted, 1e-4)


def _numbers(output, word):
    return np.array(re.findall(r"^%s (\S+)$" % word, output, re.MULTILINE), float)
