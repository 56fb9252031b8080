"""Trains a small network on real handwritten digits, in float32 and in mixed precision, through both entrances.

Written as its author would have written it for TensorFlow 1.15 on an NPU; run it with `npu-shim run`. The data are
the 1,797 digits (8x8 pixels) of the UCI optical digits set.
"""

import os
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

STEPS = 300
data = np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.npz"))
images = data["images"].reshape(-1, 8, 8, 1).astype(np.float32) / 16.0
labels = data["labels"].astype(np.int32)
# a float32 run needs a profile whose convolutions run in float32; the NPU's run in float16 only
MODES = {"float32": ("must_keep_origin_dtype", "gpu"), "allow_mix_precision": ("allow_mix_precision", "ascend910")}


def network(x):
    h = tf.layers.conv2d(x, 32, 3, padding="same", activation=tf.nn.relu)
    h = tf.layers.max_pooling2d(h, 2, 2)
    h = tf.layers.conv2d(h, 64, 3, padding="same", activation=tf.nn.relu)
    return tf.layers.dense(tf.layers.flatten(h), 10)


def minimize(loss):
    manager = ExponentialUpdateLossScaleManager(init_loss_scale=2**15, incr_every_n_steps=100)
    optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-3), manager)
    return optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())


def session_config(mode):
    precision_mode, profile = MODES[mode]
    config = tf.ConfigProto()
    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes(precision_mode)
    custom_op.parameter_map["npu_shim_profile"].s = tf.compat.as_bytes(profile)
    return config


def train_with_session(mode):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int32, [None])
        logits = network(x)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train_op = minimize(loss)
        correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
        rng = np.random.RandomState(0)
        with tf.Session(config=session_config(mode)) as sess:
            sess.run(tf.global_variables_initializer())
            for step in range(STEPS):
                pick = rng.randint(0, 1500, 64)
                value, _ = sess.run([loss, train_op], {x: images[pick], y: labels[pick]})
                progress("sess.run", mode, step + 1, value)
            return float(sess.run(correct, {x: images[1500:], y: labels[1500:]}))


def train_with_estimator(mode):
    def model_fn(features, labels, mode, params):
        logits = network(features["x"])
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        if mode == tf.estimator.ModeKeys.TRAIN:
            return NPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))
        metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
        return NPUEstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    def training():
        data_set = tf.data.Dataset.from_tensor_slices(({"x": images[:1500]}, labels[:1500]))
        return data_set.shuffle(1500, 1).repeat().batch(64)

    def testing():
        return tf.data.Dataset.from_tensors(({"x": images[1500:]}, labels[1500:]))

    class Progress(tf.train.SessionRunHook):
        def before_run(self, _):
            return tf.train.SessionRunArgs([tf.train.get_global_step(), "sparse_softmax_cross_entropy_loss/value:0"])

        def after_run(self, _, values):
            progress("Estimator", mode, values.results[0], values.results[1])

    with tempfile.TemporaryDirectory() as model_dir:
        config = NPURunConfig(
            model_dir=model_dir,
            tf_random_seed=1,
            iterations_per_loop=10,
            session_config=session_config(mode),
            precision_mode=MODES[mode][0],
        )
        estimator = NPUEstimator(model_fn=model_fn, config=config)
        estimator.train(training, max_steps=STEPS, hooks=[Progress()])
        return float(estimator.evaluate(testing)["accuracy"])


class Progress:
    """One bar for each run: tqdm's on a terminal, elsewhere one line a minute; without tqdm, lines everywhere."""

    def __init__(self):
        self.run, self.bar, self.said = None, None, 0.0

    def __call__(self, entrance, mode, step, loss):
        """Shows the loss of a step, from 1 to STEPS."""
        if (entrance, mode) != self.run:
            self.run, self.said = (entrance, mode), time.monotonic()
            self.bar = tqdm(total=STEPS, desc="%-10s %-20s" % self.run) if tqdm and sys.stderr.isatty() else None
        if self.bar is not None:
            self.bar.set_postfix_str("loss %.4f" % loss, refresh=False)
            self.bar.update(step - self.bar.n)
            if step >= STEPS:
                self.bar.close()
        elif step >= STEPS or time.monotonic() - self.said >= 60:
            self.said = time.monotonic()
            print("%-10s %-20s step %3d of %d, loss %.4f" % (*self.run, step, STEPS, loss), flush=True)


progress = Progress()


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    entrances = {"sess.run": train_with_session, "Estimator": train_with_estimator}
    accuracy = {}
    for entrance in entrances:
        for mode in MODES:
            accuracy[entrance, mode] = entrances[entrance](mode)
    print("\naccuracy on 297 digits not trained on\n%-12s %10s %22s" % ("", *MODES))
    for entrance in entrances:
        print("%-12s %10.4f %22.4f" % (entrance, *[accuracy[entrance, mode] for mode in MODES]))
    sys.exit(0 if min(accuracy.values()) > 0.9 else 1)
