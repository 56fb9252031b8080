"""Games that are played in a simulation."""

from data import stand_in
from recipe import Recipe

RECIPES = (
    Recipe(
        "openai/baselines",
        "-m baselines.deepq.experiments.train_cartpole",
        lambda net, random: stand_in("gym", net),
        commit="ea25b9e8b2",
        steps=40,
        limit=600,
    ),
)
