"""Generative networks: two that train against each other, flows, pixel by pixel."""

from data import mnist
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/built-in/graph/DCGAN_ID0686_for_TensorFlow",
        "main.py --train --epoch=1 --batch_size=8 --input_height=28 --output_height=28 --dataset=mnist",
        lambda net, random: mnist(net / "data" / "mnist", random, 60000, 10000, compressed=False),
        steps=7,
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/wgan",
        "wgan.py --model=mlp --iters=1000",
        lambda net, random: mnist(net / "wgan_ID0201_for_TensorFlow" / "mnist", random),
        cwd="wgan_ID0201_for_TensorFlow",
        steps=20,
        limit=600,
    ),
)
