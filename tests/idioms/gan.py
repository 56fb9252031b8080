"""A GAN: generator and discriminator in variable scopes, the discriminator reused, an optimizer for each."""

import sys

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, NOISE, STEPS = 16, 8, 5


def weights():
    return tf.random_normal_initializer(stddev=0.1, seed=1)


def generator(z):
    with tf.variable_scope("generator"):
        h = tf.layers.dense(z, 4 * 4 * 16, kernel_initializer=weights())
        h = tf.nn.relu(tf.layers.batch_normalization(tf.reshape(h, [-1, 4, 4, 16]), training=True))
        h = tf.layers.conv2d_transpose(h, 8, 5, strides=2, padding="same", kernel_initializer=weights())
        h = tf.nn.relu(tf.contrib.layers.batch_norm(h, is_training=True, updates_collections=None, scale=True))
        h = tf.layers.conv2d_transpose(h, 1, 5, strides=2, padding="same", kernel_initializer=weights())
        return tf.nn.tanh(h)


def discriminator(image, reuse=False):
    with tf.variable_scope("discriminator", reuse=reuse):
        h = tf.nn.leaky_relu(tf.layers.conv2d(image, 8, 5, 2, "same", kernel_initializer=weights(), name="conv1"))
        h = tf.nn.leaky_relu(tf.layers.conv2d(h, 16, 5, 2, "same", kernel_initializer=weights(), name="conv2"))
        return tf.layers.dense(tf.layers.flatten(h), 1, kernel_initializer=weights(), name="logit")


def cross_entropy(logits, real):
    labels = tf.ones_like(logits) if real else tf.zeros_like(logits)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer():
    manager = ExponentialUpdateLossScaleManager(init_loss_scale=2**10, incr_every_n_steps=1000)
    return NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-4, beta1=0.5), manager)


tf.set_random_seed(1)
image = tf.placeholder(tf.float32, [BATCH, 16, 16, 1], "image")
z = tf.placeholder(tf.float32, [BATCH, NOISE], "z")
fake = generator(z)
on_real, on_fake = discriminator(image), discriminator(fake, reuse=True)
d_loss = cross_entropy(on_real, True) + cross_entropy(on_fake, False)
g_loss = cross_entropy(on_fake, True)

d_vars = [v for v in tf.trainable_variables() if v.name.startswith("discriminator")]
g_vars = [v for v in tf.trainable_variables() if v.name.startswith("generator")]
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    d_train = optimizer().minimize(d_loss, var_list=d_vars)
    g_train = optimizer().minimize(g_loss, var_list=g_vars)

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

rng = np.random.RandomState(0)
stripes = np.sign(np.sin(np.arange(16) / 2.0)).astype(np.float32).reshape([1, 16, 1, 1])
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(STEPS):
        real = stripes * rng.uniform(0.5, 1.0, [BATCH, 1, 16, 1])
        noise = rng.uniform(-1, 1, [BATCH, NOISE])
        d_value, _ = sess.run([d_loss, d_train], {image: real, z: noise})
        g_value, _ = sess.run([g_loss, g_train], {image: real, z: noise})
        print("loss %d %.6f" % (2 * i, d_value))
        print("loss %d %.6f" % (2 * i + 1, g_value))
