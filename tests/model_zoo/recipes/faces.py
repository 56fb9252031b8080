"""Faces."""

import numpy as np
from data import images
from recipe import Recipe


def positions(net, random, count=3):
    """Photos of faces, the position in space of each of their points as an array, and how much each point weighs."""
    folder = net / "faces" / "0"
    images(folder, random, count, (256, 256))
    for number in range(count):
        np.save(str(folder / ("%d.npy" % number)), random.integers(0, 256, (256, 256, 3)).astype(np.float32))
    beside = net.with_name(net.name + "Data") / "uv-data"  # no "/" between: before Python 3.9 __file__ has no folder
    images(beside, random, 1, (256, 256))
    (beside / "0.jpg").rename(beside / "weight_mask_final.jpg")


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/PRNET_ID0727_for_TensorFlow",
        "train.py --root_train_data_dir={net}/faces --batch_size=1 --epochs=1",
        positions,
        mode="allow_fp32_to_fp16",
        checkpoint="checkpoint/256_256_resfcn256_weight_0.index",
        limit=600,
    ),
)
