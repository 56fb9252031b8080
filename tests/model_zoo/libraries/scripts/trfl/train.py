"""Losses of TRFL on a Sonnet network: Q-learning, double Q-learning and an actor's loss; restored afterwards."""

import numpy as np
import sonnet as snt
import tensorflow as tf
import trfl

random = np.random.RandomState(0)
state, target = tf.placeholder(tf.float32, [32, 4]), tf.placeholder(tf.float32, [32, 4])
action, reward = tf.placeholder(tf.int32, [32]), tf.placeholder(tf.float32, [32])
online, frozen = snt.nets.MLP([16, 2], name="online"), snt.nets.MLP([16, 2], name="frozen")
discount = tf.fill([32], 0.9)
q, q_next, q_other = online(state), frozen(target), online(target)
single, _ = trfl.qlearning(q, action, reward, discount, q_next)
double, _ = trfl.double_qlearning(q, action, reward, discount, q_next, q_other)
policy, value = snt.nets.MLP([16, 2], name="policy")(state), snt.nets.MLP([16, 1], name="value")(state)
actor, _ = trfl.sequence_advantage_actor_critic_loss(
    policy[:, None], value, action[:, None], reward[:, None], discount[:, None], value[-1], entropy_cost=0.01
)
loss = tf.reduce_mean(single) + tf.reduce_mean(double) + tf.reduce_mean(actor)
train = tf.train.AdamOptimizer(0.01).minimize(loss)
update = trfl.update_target_variables(frozen.get_variables(), online.get_variables(), tau=0.1)
feed = {state: random.randn(32, 4), target: random.randn(32, 4), action: random.randint(0, 2, 32)}
feed[reward] = random.rand(32)
saver = tf.train.Saver()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run([loss, train], feed)
        session.run(update)
    saver.save(session, "./model.ckpt")
    before = session.run(q, feed)
with tf.Session() as session:
    saver.restore(session, "./model.ckpt")
    np.testing.assert_allclose(session.run(q, feed), before, atol=1e-2)
