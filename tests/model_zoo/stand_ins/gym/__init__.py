"""A stand-in for gym where its games cannot be had: an Atari game of made-up frames, and a pole on a cart that is
numbers, with the wrappers of gym 0.10.

Source: what the scripts of the suite call of gym 0.10.9; old wrappers override `_step`, new ones `step`.
"""

import sys

import numpy as np

from . import spaces

LENGTH = 200  # steps of a game
MEANINGS = ["NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"]


class Env:
    """A game: frames of 210 by 160, a reward now and then, over after LENGTH steps."""

    def __init__(self, name="Made-up"):
        self.metadata, self.reward_range = {}, (-1, 1)
        self.spec = type("Spec", (), {"id": name})()
        self.ale = type("Lives", (), {"lives": staticmethod(lambda: 1)})()
        self.observation_space = spaces.Box(0, 255, (210, 160, 3))
        self.action_space = spaces.Discrete(len(MEANINGS))
        self.np_random = np.random.RandomState(0)
        self._steps = 0

    @property
    def unwrapped(self):
        return self

    def get_action_meanings(self):
        return MEANINGS

    def seed(self, seed=None):
        self.np_random = np.random.RandomState(seed)
        return [seed]

    def reset(self, **others):
        self._steps = 0
        return self._frame()

    def step(self, action):
        self._steps += 1
        reward = float(self.np_random.randint(-1, 2) * (self._steps % 10 == 0))
        return self._frame(), reward, self._steps >= LENGTH, {}

    def close(self):
        pass

    def _frame(self):
        return self.np_random.randint(0, 256, (210, 160, 3)).astype(np.uint8)


class Pole(Env):
    """Four numbers, two actions: numbers that leave the bounds by themselves, later if each action is the right one."""

    def __init__(self, name="Made-up"):
        super().__init__(name)
        self.observation_space = spaces.Box(-5, 5, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._state = np.zeros(4)

    def reset(self, **others):
        self._state = self.np_random.uniform(-0.05, 0.05, 4)
        return self._state

    def step(self, action):
        push = 0.1 * (1 if action else -1)
        self._state = 1.1 * self._state + push * np.array([0.1, 1.0, -0.1, -1.0])
        return self._state, 1.0, bool(np.abs(self._state).max() > 1), {}


class Wrapper(Env):
    def __init__(self, env=None):
        self.env = env
        for name in ("spec", "observation_space", "action_space"):
            setattr(self, name, getattr(env, name))

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def get_action_meanings(self):
        return self.env.get_action_meanings()

    def seed(self, seed=None):
        return self.env.seed(seed)

    def reset(self, **others):
        return self._reset() if hasattr(self, "_reset") else self.env.reset(**others)

    def step(self, action):
        return self._step(action) if hasattr(self, "_step") else self.env.step(action)


class ObservationWrapper(Wrapper):
    def reset(self, **others):
        return self.observation(self.env.reset(**others))

    def step(self, action):
        observation, *others = self.env.step(action)
        return (self.observation(observation), *others)

    def observation(self, observation):
        return self._observation(observation)


class RewardWrapper(Wrapper):
    def step(self, action):
        observation, reward, *others = self.env.step(action)
        return (observation, self.reward(reward), *others)

    def reward(self, reward):
        return self._reward(reward)


def make(name):
    return (Pole if "Pole" in name else Env)(name)


core = sys.modules["gym.core"] = sys.modules[__name__]
