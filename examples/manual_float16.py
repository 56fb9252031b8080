"""Mixed precision by hand: a float16 network with float32 masters, and its float32 checkpoint in a float16 graph.

npu-shim run examples/manual_float16.py DIGITS
"""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from npu_shim import CastFromFloat32SaverBuilder, float32_variable_storage_getter

data = np.load(sys.argv[1])
images = data["images"].reshape(-1, 64).astype(np.float32) / 16.0
labels = data["labels"].astype(np.int32)


def network(x, getter=None):
    with tf.variable_scope("net", custom_getter=getter):
        w1 = tf.get_variable("w1", [64, 128], tf.float16)
        b1 = tf.get_variable("b1", [128], tf.float16, tf.zeros_initializer())
        w2 = tf.get_variable("w2", [128, 10], tf.float16)
    return tf.matmul(tf.nn.relu(tf.matmul(tf.cast(x, tf.float16), w1) + b1), w2)


def train(folder):
    """Trains with float32 masters; returns the path of their checkpoint."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        x = tf.placeholder(tf.float32, [None, 64])
        y = tf.placeholder(tf.int32, [None])
        logits = tf.cast(network(x, float32_variable_storage_getter), tf.float32)  # softmax wants float32
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(
            init_loss_scale=2**20, incr_every_n_steps=1000, decr_every_n_nan_or_inf=2, decr_ratio=0.5
        )
        optimizer = tf.contrib.mixed_precision.LossScaleOptimizer(tf.train.AdamOptimizer(2e-3), manager)
        train_op = optimizer.minimize(loss)
        print("stored as", sorted({v.dtype.base_dtype.name for v in tf.trainable_variables()}))
        rng = np.random.RandomState(0)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for _ in range(400):
                pick = rng.randint(0, 1500, 64)
                sess.run(train_op, {x: images[pick], y: labels[pick]})
            return tf.train.Saver(tf.trainable_variables()).save(sess, os.path.join(folder, "float32.ckpt"))


def predict(checkpoint):
    """Restores the float32 checkpoint into a graph whose variables are float16; returns the classes of the test set."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 64])
        logits = network(x)
        saver = tf.train.Saver(builder=CastFromFloat32SaverBuilder())
        with tf.Session() as sess:
            saver.restore(sess, checkpoint)
            predicted = np.argmax(sess.run(logits, {x: images[1500:]}), 1)
            saver.restore(sess, saver.save(sess, checkpoint + "-float16"))  # a float16 checkpoint restores as well
            again = np.argmax(sess.run(logits, {x: images[1500:]}), 1)
    print("the same from float16", bool((again == predicted).all()))
    return predicted


print("accuracy", float(np.mean(predict(train(tempfile.mkdtemp())) == labels[1500:])))
