"""Few-shot learning: gradients through gradient steps."""

from data import images
from recipe import Recipe


def mini_imagenet(folder, random, classes=5, count=16):
    """84 by 84 images, a folder a class."""
    for part in ("train", "val"):
        for number in range(classes):
            images(folder / part / ("n%08d" % number), random, count, (84, 84))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/MAML_ID0755_for_TensorFlow",
        "main.py --datasource=miniimagenet --logdir={net}/logs --meta_batch_size=1 --num_updates=1 --num_filters=4 "
        "--metatrain_iterations=1500",
        lambda net, random: mini_imagenet(net / "data" / "miniImagenet", random),
        steps=6,
        limit=600,
    ),
)
