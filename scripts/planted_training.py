"""A training script as users write it, with a fault of precision in a healthy model, for `npu-shim tune` to find.

    npu-shim tune scripts/planted_training.py MODEL FAULT [STEPS [SEED]]

MODEL is convolution, transformer or recurrent; FAULT is none, mask, square, product, scale or index.
Prints the mean loss of the last quarter of the steps.
"""

import sys

import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *

MODEL, FAULT = sys.argv[1:3]
STEPS, SEED = [int(word) for word in sys.argv[3:]] + [120, 1][len(sys.argv) - 3 :]
BATCH, PLACES = 32, 16


def dense(x, size, name):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [x.shape[-1], size])
        flat = tf.reshape(x, [-1, int(x.shape[-1])])
        return tf.reshape(tf.matmul(flat, w, name="product"), [-1, *[int(d) for d in x.shape[1:-1]], size])


def none(t):
    return t


def mask(t):
    """-1e9 for what is masked: rows that are masked whole have no finite value left in float16."""
    return t + tf.nn.softmax(tf.add(t, -1e9, name="planted"))


def square(t):
    """Squares of 300, which float16 does not hold, go into a product."""
    return t + dense(tf.square(t + 300.0, name="planted"), int(t.shape[-1]), "after") * 1e-6


def product(t):
    """A product of 512 * 512."""
    size = int(t.shape[-1])
    flat = tf.reshape(tf.minimum(tf.exp(t) * 1e4, 512.0), [-1, size])
    weights = tf.get_variable("planted_w", [size, size], initializer=tf.constant_initializer(512.0 * np.eye(size)))
    return t + tf.reshape(tf.matmul(flat, weights, name="planted"), tf.shape(t)) * 1e-6


def scale(t):
    """Scaled by 1e10 and back again."""
    return t + tf.multiply(tf.nn.relu(dense(t, int(t.shape[-1]), "before")), 1e10, name="planted") * 1e-10


def index(t):
    """Places beyond 2048, of which float16 holds every second, go through a product."""
    kept = tf.matmul(places, tf.get_variable("step", [1, 1], initializer=tf.ones_initializer(), trainable=False),
                     name="planted")  # fmt: skip
    row = tf.one_hot(tf.cast(kept[:, 0] - 2048.0 + 0.5, tf.int32), PLACES)
    shape = [-1] + [1] * (len(t.shape) - 2) + [int(t.shape[-1])]
    return t + tf.reshape(dense(row, shape[-1], "place"), shape)


def convolution(x, plant):
    h = dense(tf.reshape(x, [-1, 8, 8, 3]), 8, "in")
    for k in range(4):
        h = h + tf.layers.conv2d(h, 8, 3, padding="same", activation=tf.nn.relu, name="conv%d" % k)
        h = plant(h) if k == 1 else h
    return tf.reshape(h, [-1, 512])


def transformer(x, plant):
    h = dense(tf.reshape(x, [-1, 8, 24]), 32, "in")
    for k in range(3):
        with tf.variable_scope("block%d" % k):
            q, key, v = (dense(h, 32, name) for name in ("q", "k", "v"))
            logits = tf.matmul(q, key, transpose_b=True) * 32**-0.5
            logits = plant(logits) if k == 1 and FAULT != "index" else logits  # places are of no use there
            h = h + dense(tf.matmul(tf.nn.softmax(logits), v), 32, "out")
            mean, variance = tf.nn.moments(h, [-1], keepdims=True)
            h = (h - mean) * tf.rsqrt(variance + 1e-6)
            h = h + dense(tf.nn.relu(dense(h, 64, "wide")), 32, "narrow")
            h = plant(h) if k == 1 and FAULT == "index" else h
    return tf.reshape(h, [-1, 256])


def recurrent(x, plant):
    cell = tf.nn.rnn_cell.LSTMCell(48)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.reshape(x, [-1, 8, 24]), dtype=tf.float32)
    narrow = plant(dense(tf.reshape(outputs, [-1, 8, 48]), 4, "few"))
    return tf.concat([tf.reshape(outputs, [-1, 384]), tf.reshape(narrow, [-1, 32])], 1)


np.random.seed(SEED)
tf.set_random_seed(SEED)
features = tf.placeholder(tf.float32, [None, 192], "features")
places = tf.placeholder(tf.float32, [None, 1], "places")
targets = tf.placeholder(tf.float32, [None, 2], "targets")
predicted = dense({"convolution": convolution, "transformer": transformer, "recurrent": recurrent}[MODEL](
    features, {f.__name__: f for f in (none, mask, square, product, scale, index)}[FAULT]), 2, "head")  # fmt: skip
loss = tf.reduce_mean(tf.square(predicted - targets), name="loss")
manager = FixedLossScaleManager(loss_scale=1024)
train = NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-3), manager).minimize(loss)
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
losses = []
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(STEPS):
        x = np.random.uniform(-1, 1, [BATCH, 192])
        place = np.random.randint(0, PLACES, [BATCH, 1])
        y = np.stack([x[:, :24].mean(1) * 5, (place[:, 0] % 2) if FAULT == "index" else x[:, -24:].mean(1) * 5], 1)
        feed = {features: x, targets: y}
        if FAULT == "index":
            feed[places] = place + 2048.0
        losses.append(sess.run([loss, train], feed)[0])
print("mean loss of the last quarter: %.5f" % np.mean(losses[-STEPS // 4 :]))
