"""Libraries of reinforcement learning."""

from libraries.layers import PROBABILITY, SONNET
from recipe import Recipe

RECIPES = (
    Recipe(
        "stable-baselines",
        "train.py",
        install="stable-baselines==2.10.2 gym==0.17.3",
        checkpoint="ppo2.zip",
        apart=1.0,  # the actions are drawn
    ),
    Recipe(
        "trfl",
        "train.py",
        install="trfl==1.2.0 " + SONNET,
        checkpoint="model.ckpt.index",
    ),
    Recipe("tensorforce", "train.py", install="tensorforce==0.5.2 gym==0.17.3", checkpoint="agent/ppo*", apart=1.0),
    Recipe(
        "tf-agents",
        "train.py",
        install="tf-agents==0.3.0 gin-config==0.4.0 " + PROBABILITY,
        checkpoint="model.ckpt.index",
        apart=1.0,  # what it is shown is drawn
    ),
)
