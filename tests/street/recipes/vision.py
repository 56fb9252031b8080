"""Vision: classification of images."""

from data import folders, mnist
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/LeNet_ID0127_for_TensorFlow",
        "LeNet.py --steps=20 --precision_mode=allow_mix_precision",
        lambda net, random: (mnist(net / "MNIST", random), folders(net, "test", "output/ckpt_npu")),
        checkpoint="output/ckpt_npu/mode.ckpt.index",
        loss=(2, 4),
    ),
)
