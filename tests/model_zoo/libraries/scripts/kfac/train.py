"""K-FAC on two dense layers: registered layers, the optimizer with its damping; restored afterwards."""

import kfac
import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
x = random.rand(64, 8).astype(np.float32)
y = (x.mean(1) > 0.5).astype(np.int32)
fed, label = tf.placeholder(tf.float32, [64, 8]), tf.placeholder(tf.int32, [64])
layers = kfac.LayerCollection()
hidden = tf.layers.Dense(16, name="hidden")
before = hidden(fed)
layers.register_fully_connected((hidden.kernel, hidden.bias), fed, before)
out = tf.layers.Dense(2, name="out")
activations = tf.nn.tanh(before)
logits = out(activations)
layers.register_fully_connected((out.kernel, out.bias), activations, logits)
layers.register_categorical_predictive_distribution(logits, seed=1)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
optimizer = kfac.PeriodicInvCovUpdateKfacOpt(
    invert_every=2, cov_update_every=1, learning_rate=0.05, cov_ema_decay=0.9, damping=0.01,
    layer_collection=layers, momentum=0.9,
)  # fmt: skip
train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
saver = tf.train.Saver()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run([loss, train], {fed: x, label: y})
    saver.save(session, "./model.ckpt")
    wanted = session.run(logits, {fed: x})
with tf.Session() as session:
    saver.restore(session, "./model.ckpt")
    np.testing.assert_allclose(session.run(logits, {fed: x}), wanted, atol=1e-2)
