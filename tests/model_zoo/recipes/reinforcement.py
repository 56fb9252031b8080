"""Reinforcement learning, on games of made-up frames."""

from data import stand_in
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/contrib/reinforcement-learning/iqn",
        "IQN_tf.py --envs_num=8 --batch_size=8 --memory_capacity=2000 --train_url={net}/out",
        lambda net, random: (stand_in("gym", net / "IQN_ID1995_for_TensorFlow"), (net / "out").mkdir()),
        cwd="IQN_ID1995_for_TensorFlow",
        steps=5,
        loss=(0, 5),
        limit=600,
    ),
)
