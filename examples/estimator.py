"""An NPUEstimator that trains, evaluates and predicts: npu-shim run examples/estimator.py DIGITS"""

import sys
import tempfile

import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *

data = np.load(sys.argv[1])
images = data["images"].reshape(-1, 64).astype(np.float32) / 16.0
labels = data["labels"].astype(np.int32)


def model_fn(features, labels, mode, params):
    h = tf.layers.dense(features["x"], params["width"], activation=tf.nn.relu)
    h = tf.layers.dense(h, params["width"], activation=tf.nn.relu)
    logits = tf.layers.dense(h, 10)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return NPUEstimatorSpec(mode, predictions={"class": tf.argmax(logits, 1)})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
        return NPUEstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    manager = FixedLossScaleManager(loss_scale=1024)
    optimizer = NPULossScaleOptimizer(NPUDistributedOptimizer(tf.train.AdamOptimizer(1e-3)), manager)
    return NPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


def input_fn(part, repeat):
    def feed():
        data_set = tf.data.Dataset.from_tensor_slices(({"x": images[part]}, labels[part]))
        if repeat:
            data_set = data_set.shuffle(2000, seed=1).repeat()
        return data_set.batch(64, drop_remainder=repeat)

    return feed


config = NPURunConfig(
    model_dir=tempfile.mkdtemp(),
    tf_random_seed=1,
    save_checkpoints_steps=100,
    session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=False),
    precision_mode="allow_mix_precision",
    iterations_per_loop=10,
)
estimator = NPUEstimator(model_fn=model_fn, config=config, params={"width": 128})
estimator.train(input_fn(slice(0, 1500), True), max_steps=400)
result = estimator.evaluate(input_fn(slice(1500, None), False))
first = estimator.predict(lambda: tf.data.Dataset.from_tensors({"x": images[:8]}))
print("classes", [each["class"] for each in first], "labels", list(labels[:8]))
print("step", result["global_step"])
print("accuracy", result["accuracy"])
