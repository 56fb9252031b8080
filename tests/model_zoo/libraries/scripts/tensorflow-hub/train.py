"""A module of TensorFlow Hub: made, trained in a larger network, exported, and loaded from its folder."""

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub


def embedding():
    x = tf.placeholder(tf.float32, [None, 8])
    hub.add_signature(inputs=x, outputs=tf.layers.dense(x, 16, tf.nn.relu))


random = np.random.RandomState(0)
x = random.rand(64, 8).astype(np.float32)
y = x[:, :1] * 2 - 1

spec = hub.create_module_spec(embedding)
with tf.Graph().as_default():
    module = hub.Module(spec, name="embedding", trainable=True)
    fed, wanted = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 1])
    features = module(fed)
    loss = tf.losses.mean_squared_error(wanted, tf.layers.dense(features, 1))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(8):
            session.run([loss, train], {fed: x, wanted: y})
        module.export("exported", session)
        before = session.run(features, {fed: x})

with tf.Graph().as_default():
    features = hub.Module("exported")(tf.constant(x))
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        np.testing.assert_allclose(session.run(features), before, atol=1e-2)
