"""DQN of TF-Agents 0.3 in TensorFlow 1's way: a replay buffer, a dataset, the agent's train op; restored afterwards."""

import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step, trajectory

tf.compat.v1.enable_resource_variables()
random = np.random.RandomState(0)
observation = tensor_spec.TensorSpec([4], tf.float32, "observation")
action = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 1, "action")
steps = time_step.time_step_spec(observation)
network = q_network.QNetwork(observation, action, fc_layer_params=(16,))
agent = dqn_agent.DqnAgent(
    steps, action, q_network=network, optimizer=tf.compat.v1.train.AdamOptimizer(1e-2),
    train_step_counter=tf.compat.v1.train.get_or_create_global_step(),
)  # fmt: skip
buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, batch_size=1, max_length=64)

item = trajectory.Trajectory(
    step_type=tf.ones([1], tf.int32), observation=tf.random.normal([1, 4]), action=tf.ones([1], tf.int32),
    policy_info=(), next_step_type=tf.ones([1], tf.int32), reward=tf.ones([1]), discount=tf.ones([1]),
)  # fmt: skip
add = buffer.add_batch(item)
fed = tf.compat.v1.data.make_initializable_iterator(buffer.as_dataset(sample_batch_size=8, num_steps=2))
loss = agent.train(fed.get_next()[0])
saver = tf.compat.v1.train.Saver()
with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(agent.initialize())
    session.run(fed.initializer)
    for _ in range(16):
        session.run(add)
    for _ in range(6):
        print(session.run(loss).loss)
    saver.save(session, "./model.ckpt")
    wanted = session.run(network.trainable_weights[0])
with tf.compat.v1.Session() as session:
    saver.restore(session, "./model.ckpt")
    np.testing.assert_array_equal(session.run(network.trainable_weights[0]), wanted)
