"""word2vec: skip-grams of a text, noise-contrastive estimation, nearest neighbours by cosine."""

import collections
import math
import random
import sys

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, SKIPS, WINDOW, VOCABULARY, EMBEDDING, SAMPLED, STEPS = 32, 2, 1, 50, 32, 8, 6

random.seed(0)
words = ["w%d" % min(int(random.expovariate(0.1)), 200) for _ in range(3000)]
counts = [("UNK", 0)] + collections.Counter(words).most_common(VOCABULARY - 1)
dictionary = {word: i for i, (word, _) in enumerate(sorted(counts, key=lambda pair: (-pair[1], pair[0])))}
data = [dictionary.get(word, dictionary["UNK"]) for word in words]
position = 0


def generate_batch():
    """Centre words [BATCH] and words from their windows [BATCH, 1]."""
    global position
    batch, labels = np.ndarray([BATCH], np.int32), np.ndarray([BATCH, 1], np.int32)
    for i in range(0, BATCH, SKIPS):
        centre = position + WINDOW
        around = [p for p in range(position, position + 2 * WINDOW + 1) if p != centre]
        for j, p in enumerate(random.sample(around, SKIPS)):
            batch[i + j], labels[i + j, 0] = data[centre], data[p]
        position = (position + 1) % (len(data) - 2 * WINDOW)
    return batch, labels


graph = tf.Graph()
with graph.as_default():
    inputs = tf.placeholder(tf.int32, shape=[BATCH])
    outputs = tf.placeholder(tf.int32, shape=[BATCH, 1])
    with tf.device("/cpu:0"):
        embeddings = tf.Variable(tf.random_uniform([VOCABULARY, EMBEDDING], -1.0, 1.0, seed=1))
        embed = tf.nn.embedding_lookup(embeddings, inputs)
        stddev = 1.0 / math.sqrt(EMBEDDING)
        nce_weights = tf.Variable(tf.truncated_normal([VOCABULARY, EMBEDDING], stddev=stddev, seed=2))
        nce_biases = tf.Variable(tf.zeros([VOCABULARY]))
    sampler = tf.nn.log_uniform_candidate_sampler(tf.to_int64(outputs), 1, SAMPLED, True, VOCABULARY, seed=3)
    losses = tf.nn.nce_loss(
        nce_weights, nce_biases, outputs, embed, SAMPLED, num_classes=VOCABULARY, sampled_values=sampler
    )
    loss = tf.reduce_mean(losses)
    optimizer = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
    normalized = embeddings / norm
    similarity = tf.matmul(normalized[:4], normalized, transpose_b=True)
    init = tf.initialize_all_variables()

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

with tf.Session(graph=graph, config=config) as session:
    init.run()
    for i in range(STEPS):
        batch, labels = generate_batch()
        _, value = session.run([optimizer, loss], feed_dict={inputs: batch, outputs: labels})
        print("loss %d %.6f" % (i, value))
    nearest = (-similarity.eval()).argsort(axis=1)[:, 0]
    assert list(nearest) == [0, 1, 2, 3], nearest
