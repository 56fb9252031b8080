"""OCR with CTC: columns of an image through bidirectional LSTMs, ctc_loss on sparse labels, decoding, edit distance."""

import sys

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, WIDTH, HEIGHT, LETTERS, HIDDEN, STEPS = 8, 24, 12, 6, 32, 6

rng = np.random.RandomState(0)
glyphs = rng.rand(LETTERS, 4, HEIGHT).astype(np.float32)


def next_batch():
    """Images [BATCH, WIDTH, HEIGHT] of words, their widths, and the words as the parts of a SparseTensor."""
    images, widths, indices, values = np.zeros([BATCH, WIDTH, HEIGHT], np.float32), [], [], []
    for row in range(BATCH):
        word = rng.randint(0, LETTERS, rng.randint(2, 5))
        columns = np.concatenate([glyphs[letter] for letter in word])
        images[row, : len(columns)] = columns + 0.05 * rng.randn(*columns.shape)
        widths.append(np.asscalar(np.array(columns.shape)[:1]))
        indices += [(row, place) for place in range(len(word))]
        values += list(word)
    longest = max(place for _, place in indices) + 1
    words = np.array(indices, np.int64), np.array(values, np.int32), np.array([BATCH, longest], np.int64)
    return images, widths, words


tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [None, None, HEIGHT], "images")
width = tf.placeholder(tf.int32, [None], "widths")
word = tf.sparse_placeholder(tf.int32, name="words")

with tf.variable_scope("ocr", initializer=tf.glorot_uniform_initializer(seed=1)):
    forward = tf.contrib.rnn.MultiRNNCell([tf.contrib.rnn.LSTMCell(HIDDEN) for _ in range(2)])
    backward = tf.contrib.rnn.MultiRNNCell([tf.contrib.rnn.LSTMCell(HIDDEN) for _ in range(2)])
    (fw, bw), _ = tf.nn.bidirectional_dynamic_rnn(forward, backward, x, sequence_length=width, dtype=tf.float32)
    weights = tf.glorot_uniform_initializer(seed=2)
    logits = tf.concat([fw, bw], 2)
    logits = tf.contrib.layers.fully_connected(logits, LETTERS + 1, activation_fn=None, weights_initializer=weights)
    logits = tf.transpose(logits, [1, 0, 2])

loss = tf.reduce_mean(tf.nn.ctc_loss(labels=word, inputs=logits, sequence_length=width))
decoded, _ = tf.nn.ctc_greedy_decoder(logits, width)
error_rate = tf.reduce_mean(tf.edit_distance(tf.cast(decoded[0], tf.int32), word))

global_step = tf.Variable(0, trainable=False, name="global_step")
optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(1e-2), FixedLossScaleManager(loss_scale=64))
gradients, variables = zip(*optimizer.compute_gradients(loss))
gradients, _ = tf.clip_by_global_norm(gradients, 5.0)
train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=global_step)

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(STEPS):
        images, widths, words = next_batch()
        value, errors, _ = sess.run([loss, error_rate, train_op], {x: images, width: widths, word: words})
        print("loss %d %.6f" % (i, value))
