"""Sequence to sequence: a bidirectional encoder, Luong attention, decoders for training and for beam search."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.contrib.rnn import GRUCell
from tensorflow.python.layers.core import Dense

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, VOCABULARY, EMBEDDING, HIDDEN, STEPS = 16, 20, 16, 32, 6
PAD, GO, EOS = 0, 1, 2

hparams = tf.contrib.training.HParams(learning_rate=5e-3, beam_width=3, max_gradient_norm=5.0, attention="luong")
hparams.parse("beam_width=2")
rng = np.random.RandomState(0)


def next_batch():
    """Words and the same words backwards: source [BATCH, 6], lengths [BATCH], target with EOS [BATCH, 7]."""
    source, target = np.zeros([BATCH, 6], np.int32), np.zeros([BATCH, 7], np.int32)
    lengths = rng.randint(3, 7, BATCH)
    for row, length in enumerate(lengths):
        word = rng.randint(3, VOCABULARY, length)
        source[row, :length], target[row, :length], target[row, length] = word, word[::-1], EOS
    return source, lengths, target


def uniform(seed):
    return tf.random_uniform_initializer(-0.3, 0.3, seed=seed)


def decoder_cell(memory, memory_length):
    attention = seq2seq.LuongAttention(HIDDEN, memory, memory_sequence_length=memory_length, scale=True)
    cell = tf.nn.rnn_cell.DropoutWrapper(GRUCell(HIDDEN), input_keep_prob=1.0)
    return seq2seq.AttentionWrapper(cell, attention, attention_layer_size=HIDDEN, alignment_history=False)


tf.set_random_seed(1)
source = tf.placeholder(tf.int32, [BATCH, None], "source")
source_length = tf.placeholder(tf.int32, [BATCH], "source_length")
target = tf.placeholder(tf.int32, [BATCH, None], "target")
target_length = source_length + 1

with tf.variable_scope("seq2seq", initializer=uniform(1)):
    embedding = tf.get_variable("embedding", [VOCABULARY, EMBEDDING])
    outputs, states = tf.nn.bidirectional_dynamic_rnn(
        GRUCell(HIDDEN // 2), GRUCell(HIDDEN // 2), tf.nn.embedding_lookup(embedding, source), source_length,
        dtype=tf.float32,
    )  # fmt: skip
    memory, state = tf.concat(outputs, -1), tf.concat(states, -1)
    projection = Dense(VOCABULARY, use_bias=False, kernel_initializer=uniform(2), name="projection")

    with tf.variable_scope("decoder"):
        shifted = tf.concat([tf.fill([BATCH, 1], GO), target[:, :-1]], 1)
        helper = seq2seq.TrainingHelper(tf.nn.embedding_lookup(embedding, shifted), target_length)
        cell = decoder_cell(memory, source_length)
        start = cell.zero_state(BATCH, tf.float32).clone(cell_state=state)
        training, _, _ = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, start, projection))

    with tf.variable_scope("decoder", reuse=True):
        width = hparams.beam_width
        cell = decoder_cell(seq2seq.tile_batch(memory, width), seq2seq.tile_batch(source_length, width))
        start = cell.zero_state(BATCH * width, tf.float32).clone(cell_state=seq2seq.tile_batch(state, width))
        search = seq2seq.BeamSearchDecoder(cell, embedding, tf.fill([BATCH], GO), EOS, start, width, projection)
        decoded, _, _ = seq2seq.dynamic_decode(search, maximum_iterations=7)

logits = training.rnn_output
seen = target[:, : tf.shape(logits)[1]]
mask = tf.sequence_mask(target_length, tf.shape(logits)[1], dtype=tf.float32)
loss = seq2seq.sequence_loss(logits, seen, mask)
train_op = tf.contrib.layers.optimize_loss(
    loss, tf.train.get_or_create_global_step(), hparams.learning_rate, "Adam",
    clip_gradients=hparams.max_gradient_norm, summaries=[],
)  # fmt: skip

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(STEPS):
        words, lengths, reversed_words = next_batch()
        feed = {source: words, source_length: lengths, target: reversed_words}
        value, _ = sess.run([loss, train_op], feed)
        print("loss %d %.6f" % (i, value))
    beams = sess.run(decoded.predicted_ids, feed)
    assert beams.shape[::2] == (BATCH, hparams.beam_width), beams.shape
