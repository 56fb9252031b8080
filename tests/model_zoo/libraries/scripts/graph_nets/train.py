"""A graph network of Graph Nets on made-up graphs: blocks with Sonnet's networks; restored afterwards."""

import graph_nets as gn
import numpy as np
import sonnet as snt
import tensorflow as tf

random = np.random.RandomState(0)
graphs = [
    {
        "globals": random.rand(2).astype(np.float32), "nodes": random.rand(4, 3).astype(np.float32),
        "edges": random.rand(6, 2).astype(np.float32), "senders": random.randint(0, 4, 6),
        "receivers": random.randint(0, 4, 6),
    }
    for _ in range(3)
]  # fmt: skip
fed = gn.utils_tf.placeholders_from_data_dicts(graphs)
wanted = tf.placeholder(tf.float32, [3, 1])
network = gn.modules.GraphNetwork(
    edge_model_fn=lambda: snt.nets.MLP([8]), node_model_fn=lambda: snt.nets.MLP([8]),
    global_model_fn=lambda: snt.nets.MLP([8, 1]),
)  # fmt: skip
loss = tf.losses.mean_squared_error(wanted, network(fed).globals)
train = tf.train.AdamOptimizer(0.01).minimize(loss)
feed = gn.utils_tf.get_feed_dict(fed, gn.utils_np.data_dicts_to_graphs_tuple(graphs))
feed[wanted] = random.rand(3, 1)
saver = tf.train.Saver()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run([loss, train], feed)
    saver.save(session, "./model.ckpt")
    before = session.run(loss, feed)
with tf.Session() as session:
    saver.restore(session, "./model.ckpt")
    np.testing.assert_allclose(session.run(loss, feed), before, atol=1e-2)
