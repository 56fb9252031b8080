"""Differentially private Adam of TensorFlow Privacy in an Estimator, with a loss an example; evaluated afterwards."""

import numpy as np
import tensorflow as tf
from privacy.analysis.rdp_accountant import compute_rdp, get_privacy_spent
from privacy.optimizers.dp_optimizer import DPAdamGaussianOptimizer

random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int32)


def model_fn(features, labels, mode):
    net = tf.keras.layers.Conv2D(8, 3, activation="relu").apply(features["x"])
    logits = tf.keras.layers.Dense(2).apply(tf.keras.layers.Flatten().apply(net))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = DPAdamGaussianOptimizer(l2_norm_clip=1.0, noise_multiplier=0.1, num_microbatches=16, learning_rate=0.01)
    train = optimizer.minimize(loss=losses, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def fed(epochs):
    return tf.estimator.inputs.numpy_input_fn({"x": images}, labels, 16, epochs, shuffle=False)


estimator = tf.estimator.Estimator(model_fn, "model")
estimator.train(fed(None), max_steps=6)
assert np.isfinite(estimator.evaluate(fed(1))["loss"])
assert get_privacy_spent([2, 4], compute_rdp(0.25, 1.1, 6, [2, 4]), target_delta=1e-3)[0] > 0
