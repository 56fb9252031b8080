"""PPO2 and DQN of Stable Baselines on the cart pole; saved and loaded."""

import gym
import numpy as np
from stable_baselines import DQN, PPO2

env = gym.make("CartPole-v1")
env.seed(0)
model = PPO2("MlpPolicy", env, n_steps=16, nminibatches=4, noptepochs=2, seed=0, verbose=1, n_cpu_tf_sess=1)
model.learn(64)
model.save("ppo2")
state = np.zeros(4)
np.testing.assert_allclose(PPO2.load("ppo2").action_probability(state), model.action_probability(state), atol=1e-2)
model = DQN("MlpPolicy", env, learning_starts=8, batch_size=8, seed=0, n_cpu_tf_sess=1)
model.learn(32)
model.save("dqn")
np.testing.assert_allclose(DQN.load("dqn").action_probability(state), model.action_probability(state), atol=1e-2)
