"""TF-slim: a small ResNet of bottleneck units, arg_scopes, create_train_op, a MonitoredTrainingSession."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.nets import resnet_v1

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, CLASSES, STEPS = 16, 10, 6

rng = np.random.RandomState(0)
patterns = rng.rand(CLASSES, 16, 16, 3).astype(np.float32)


def next_batch():
    labels = rng.randint(0, CLASSES, BATCH)
    return patterns[labels] + 0.1 * rng.randn(BATCH, 16, 16, 3).astype(np.float32), labels


def network(images):
    blocks = [
        resnet_v1.resnet_v1_block("block1", base_depth=8, num_units=2, stride=2),
        resnet_v1.resnet_v1_block("block2", base_depth=16, num_units=2, stride=1),
    ]
    initializer = slim.variance_scaling_initializer(seed=1)
    with slim.arg_scope(resnet_v1.resnet_arg_scope(weight_decay=1e-3)):
        with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_initializer=initializer):
            net = slim.conv2d(images, 16, [3, 3], scope="stem")
            net = slim.max_pool2d(net, [2, 2], scope="pool")
            net, end_points = resnet_v1.resnet_v1(
                net, blocks, is_training=True, global_pool=True, include_root_block=False, scope="resnet"
            )
            net = slim.flatten(slim.dropout(net, 0.9, is_training=False))
            return slim.fully_connected(net, CLASSES, activation_fn=None, normalizer_fn=None, scope="logits")


tf.logging.set_verbosity(tf.logging.ERROR)
tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [BATCH, 16, 16, 3], "images")
y = tf.placeholder(tf.int64, [BATCH], "labels")
logits = network(x)
slim.losses.sparse_softmax_cross_entropy(logits, y)
total_loss = slim.losses.get_total_loss()
step = slim.get_or_create_global_step()
rate = tf.train.exponential_decay(0.05, step, 100, 0.9, staircase=True)
manager = FixedLossScaleManager(loss_scale=128)
optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(rate, 0.9), manager)
train_op = slim.learning.create_train_op(total_loss, optimizer, global_step=step)
accuracy, update = slim.metrics.streaming_accuracy(tf.argmax(logits, 1), y)

config = tf.ConfigProto(allow_soft_placement=True)
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF

with tf.train.MonitoredTrainingSession(config=config) as sess:
    for i in range(STEPS):
        images, labels = next_batch()
        loss, _ = sess.run([train_op, update], {x: images, y: labels})
        print("loss %d %.6f" % (i, loss))
