"""Enhancement of photos."""

from data import images
from recipe import Recipe


def dark_and_bright(folder, random, count=10):
    """Photos taken twice: in the dark, and with light."""
    for part, some in (("our485", count), ("eval15", 1)):
        for light in ("low", "high"):
            images(folder / part / light, random, some, (64, 96), "png")


RECIPES = (
    Recipe(
        "TensorFlow/built-in/cv/image_segmentation/KinD_ID1132_for_TensorFlow",
        "decomposition_net_train.py",
        lambda net, random: dark_and_bright(net / "LOLdataset", random),
        mode="allow_fp32_to_fp16",
        checkpoint="checkpoint/decom_net_train/model.ckpt.index",
        steps=4,
        loss=(0.1, 5),
        limit=600,
    ),
)
