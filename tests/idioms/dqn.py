"""Deep Q-learning: a replay memory, an epsilon-greedy policy, a target network that is copied now and then."""

import collections
import random
import sys

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
CELLS, ACTIONS, BATCH, GAMMA, STEPS, EPISODES = 8, 2, 32, 0.95, 10, 12


class Corridor(object):
    """Cells in a row; the reward is at the right end. As a gym environment: reset and step."""

    def reset(self):
        self.cell = CELLS // 2
        return self.observation()

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        done = self.cell in (0, CELLS - 1)
        return self.observation(), float(self.cell == CELLS - 1), done

    def observation(self):
        return np.eye(CELLS, dtype=np.float32)[self.cell]


class Network(object):
    def __init__(self, name):
        with tf.variable_scope(name) as scope:
            self.state = tf.placeholder(tf.float32, [None, CELLS], "state")
            h = tf.contrib.layers.fully_connected(self.state, 64, weights_initializer=weights())
            h = tf.contrib.layers.fully_connected(h, 64, weights_initializer=weights())
            self.q = tf.contrib.layers.fully_connected(h, ACTIONS, activation_fn=None, weights_initializer=weights())
            self.variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope.name)


def weights():
    return tf.contrib.layers.xavier_initializer(seed=1)


tf.set_random_seed(1)
online, target = Network("online"), Network("target")
copy = [tf.assign(new, old) for old, new in zip(online.variables, target.variables)]
action = tf.placeholder(tf.int32, [None], "action")
goal = tf.placeholder(tf.float32, [None], "goal")
chosen = tf.reduce_sum(online.q * tf.one_hot(action, ACTIONS), axis=1)
loss = tf.losses.huber_loss(goal, chosen)
optimizer = NPULossScaleOptimizer(tf.train.RMSPropOptimizer(1e-3), FixedLossScaleManager(loss_scale=256))
train_op = optimizer.minimize(loss, var_list=online.variables)

config = tf.ConfigProto()
config.gpu_options.allow_growth = True
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

random.seed(0)
memory = collections.deque(maxlen=500)
environment = Corridor()
sess = tf.InteractiveSession(config=config)
sess.run(tf.global_variables_initializer())
sess.run(copy)
for episode in range(EPISODES):  # fills the memory at random; the greedy choices come with the training
    state, done = environment.reset(), False
    while not done:
        move = random.randrange(ACTIONS)
        after, reward, done = environment.step(move)
        memory.append((state, move, reward, after, done))
        state = after

state = environment.reset()
for i in range(STEPS):
    greedy = int(np.argmax(online.q.eval({online.state: [state]})))
    move = random.randrange(ACTIONS) if random.random() < 0.3 else greedy
    after, reward, done = environment.step(move)
    memory.append((state, move, reward, after, done))
    state = environment.reset() if done else after
    states, moves, rewards, afters, ends = zip(*random.sample(list(memory), BATCH))
    best = sess.run(target.q, {target.state: afters}).max(axis=1)
    goals = np.array(rewards) + GAMMA * best * (1.0 - np.array(ends, dtype=np.float))
    value, _ = sess.run([loss, train_op], {online.state: states, action: moves, goal: goals})
    print("loss %d %.6f" % (i, value))
    if i % 4 == 3:  # the target network follows
        sess.run(copy)
sess.close()
