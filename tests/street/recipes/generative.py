"""Generative networks: two that train against each other, flows, pixel by pixel."""

from data import images, mnist
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/built-in/graph/DCGAN_ID0686_for_TensorFlow",
        "main.py --train --epoch=1 --batch_size=8 --input_height=32 --output_height=32 --dataset=faces",
        lambda net, random: images(net / "data" / "faces", random, 64, (32, 32)),
        steps=9,
        loss=(0, 4),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/wgan",
        "wgan.py --model=mlp --iters=3",
        lambda net, random: mnist(net / "wgan_ID0201_for_TensorFlow" / "mnist", random),
        cwd="wgan_ID0201_for_TensorFlow",
        checkpoint="wgan_ID0201_for_TensorFlow/ckpt/*.index",
        limit=600,
    ),
)
