"""Super-resolution."""

from data import images
from recipe import Recipe

RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/subpixel",
        "main.py --epoch=1 --batch_size=16 --data_dir={net}/bmp/",
        lambda net, random: images(net / "bmp" / "Train", random, 3, (300, 300), "bmp", "t%d"),
        cwd="subpixel_ID2093_for_TensorFlow",
        steps=6,
        loss=(0, 1),
    ),
)
