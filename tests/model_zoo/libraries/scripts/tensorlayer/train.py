"""A small classifier with TensorLayer 1: layers, utils.fit, save_npz and load_and_assign_npz."""

import numpy as np
import tensorflow as tf
import tensorlayer as tl

random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int64)

session = tf.InteractiveSession()
x, y = tf.placeholder(tf.float32, [None, 8, 8, 1], "x"), tf.placeholder(tf.int64, [None], "y")
network = tl.layers.InputLayer(x, name="input")
network = tl.layers.Conv2d(network, 8, (3, 3), act=tf.nn.relu, name="conv")
network = tl.layers.MaxPool2d(network, (2, 2), name="pool")
network = tl.layers.FlattenLayer(network, name="flat")
network = tl.layers.DenseLayer(network, 16, tf.nn.relu, name="relu")
network = tl.layers.DenseLayer(network, 2, name="output")
loss = tl.cost.cross_entropy(network.outputs, y, "entropy")
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(network.outputs, 1), y), tf.float32))
train = tf.train.AdamOptimizer(0.01).minimize(loss, var_list=network.all_params)
tl.layers.initialize_global_variables(session)
tl.utils.fit(session, network, train, loss, images, labels, x, y, accuracy, 16, n_epoch=3, print_freq=1)

before = session.run(network.outputs, {x: images})
tl.files.save_npz(network.all_params, "model.npz", session)
tl.layers.initialize_global_variables(session)
tl.files.load_and_assign_npz(session, "model.npz", network)
np.testing.assert_allclose(session.run(network.outputs, {x: images}), before, atol=1e-2)
