"""A convolutional network in a loop of its own, configured as for an NPU: npu-shim run examples/sess_run.py DIGITS"""

import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *

data = np.load(sys.argv[1])
images = data["images"].reshape(-1, 8, 8, 1).astype(np.float32) / 16.0
labels = data["labels"].astype(np.int32)
train, test = slice(0, 1500), slice(1500, None)

tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [None, 8, 8, 1], "x")
y = tf.placeholder(tf.int32, [None], "y")
h = tf.layers.conv2d(x, 32, 3, padding="same", name="conv1")
h = tf.nn.relu(tf.layers.batch_normalization(h, training=True, name="bn1"))
h = tf.layers.max_pooling2d(h, 2, 2)
h = tf.nn.relu(tf.layers.conv2d(h, 64, 3, padding="same", name="conv2"))
h = npu_ops.dropout(tf.layers.flatten(h), 0.9)
logits = tf.layers.dense(h, 10, name="fc")
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))

manager = ExponentialUpdateLossScaleManager(
    init_loss_scale=2**15, incr_every_n_steps=100, decr_every_n_nan_or_inf=2, decr_ratio=0.5
)
optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-3), manager)
train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

# which ops may be low: means stay in float32, biases are added in float16
mixlist = os.path.join(tempfile.mkdtemp(), "ops_info.json")
with open(mixlist, "w") as file:
    json.dump({"black-list": {"to-add": ["ReduceMeanD", "SoftmaxV2"]}, "white-list": {"to-add": ["BiasAdd"]}}, file)

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
custom_op.parameter_map["modify_mixlist"].s = tf.compat.as_bytes(mixlist)

rng = np.random.RandomState(0)
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(300):
        pick = rng.randint(0, 1500, 64)
        value, scale, _ = sess.run([loss, "loss_scale:0", train_op], {x: images[pick], y: labels[pick]})
        if step % 100 == 0:
            print("step", step, "loss", value, "scale", scale)
    print("accuracy", sess.run(correct, {x: images[test], y: labels[test]}))
