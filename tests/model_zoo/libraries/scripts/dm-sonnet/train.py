"""Modules of Sonnet 1: a convolution, an MLP and an LSTM, trained by a session; restored in another graph."""

import numpy as np
import sonnet as snt
import tensorflow as tf

random = np.random.RandomState(0)
images = random.rand(16, 4, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3, 4)) > 0.5).astype(np.int32)


class Network(snt.AbstractModule):
    def __init__(self, name="network"):
        super().__init__(name=name)
        with self._enter_variable_scope():
            self.conv = snt.Conv2D(4, 3, initializers={"w": tf.initializers.truncated_normal(stddev=0.3)})
            self.norm = snt.BatchNorm()
            self.mlp = snt.nets.MLP([16, 8], activate_final=True)
            self.core = snt.LSTM(8)
            self.out = snt.Linear(2, regularizers={"w": tf.contrib.layers.l2_regularizer(1e-3)})

    def _build(self, images):
        net = snt.BatchApply(self.conv)(images)
        net = snt.BatchApply(lambda x: self.norm(x, is_training=True))(net)
        net = snt.BatchApply(self.mlp)(snt.BatchFlatten(2)(net))
        net, _ = tf.nn.dynamic_rnn(self.core, net, initial_state=self.core.initial_state(16, tf.float32))
        return self.out(net[:, -1])


def session_of():
    x, y = tf.placeholder(tf.float32, images.shape), tf.placeholder(tf.int32, labels.shape)
    logits = Network()(x)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    loss += tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    return tf.Session(), {x: images, y: labels}, logits, loss, train


with tf.Graph().as_default():
    session, feed, logits, loss, train = session_of()
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run([loss, train], feed)
    before = session.run(logits, feed)
    tf.train.Saver().save(session, "./model.ckpt")
with tf.Graph().as_default():
    session, feed, logits, _, _ = session_of()
    tf.train.Saver().restore(session, "./model.ckpt")
    np.testing.assert_allclose(session.run(logits, feed), before, atol=1e-2)
