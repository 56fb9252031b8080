"""PPO of Tensorforce in a small world; saved and loaded."""

import numpy as np
from tensorforce.agents import Agent
from tensorforce.environments import Environment


class Walk(Environment):
    def states(self):
        return {"type": "float", "shape": (2,)}

    def actions(self):
        return {"type": "int", "num_values": 2}

    def max_episode_timesteps(self):
        return 8

    def reset(self):
        self.at = np.zeros(2, np.float32)
        return self.at

    def execute(self, actions):
        self.at = self.at + np.array([2 * actions - 1, 1], np.float32)
        return self.at, bool(self.at[1] >= 8), float(self.at[0] > 0)


world = Environment.create(environment=Walk())
agent = Agent.create(
    agent="ppo", environment=world, batch_size=2, learning_rate=1e-2, optimization_steps=2, seed=1,
    network=[{"type": "dense", "size": 16}],
)  # fmt: skip
agent.initialize()
for _ in range(6):
    state, terminal = world.reset(), False
    while not terminal:
        action = agent.act(states=state)
        state, terminal, reward = world.execute(actions=action)
        agent.observe(terminal=terminal, reward=reward)
agent.save(directory="agent", filename="ppo")
agent.close()
