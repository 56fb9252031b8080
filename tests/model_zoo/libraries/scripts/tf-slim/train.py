"""TF-Slim as a package: arg_scope, layers, losses, learning.train and evaluation from its checkpoint."""

import numpy as np
import tensorflow.compat.v1 as tf
import tf_slim as slim

tf.disable_eager_execution()
random = np.random.RandomState(0)
images = random.rand(32, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int32)


def network(training):
    scope = slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-4))
    with scope, slim.arg_scope([slim.batch_norm], is_training=training, decay=0.9):
        net = slim.conv2d(tf.constant(images), 8, [3, 3], normalizer_fn=slim.batch_norm, scope="conv")
        net = slim.max_pool2d(net, [2, 2], scope="pool")
        net = slim.stack(slim.flatten(net), slim.fully_connected, [16, 8], scope="fc")
        return slim.fully_connected(net, 2, activation_fn=None, scope="logits")


with tf.Graph().as_default():
    tf.losses.sparse_softmax_cross_entropy(tf.constant(labels), network(True))
    train = slim.learning.create_train_op(tf.losses.get_total_loss(), tf.train.AdamOptimizer(0.01))
    slim.learning.train(train, "log", number_of_steps=8, log_every_n_steps=2, save_interval_secs=600)
with tf.Graph().as_default():
    accuracy, update = tf.metrics.accuracy(tf.constant(labels), tf.argmax(network(False), 1))
    value = slim.evaluation.evaluate_once(
        "", tf.train.latest_checkpoint("log"), "log/eval", eval_op=update, final_op=accuracy
    )
    assert 0 <= value <= 1
