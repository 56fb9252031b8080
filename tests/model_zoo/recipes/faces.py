"""Faces."""

import numpy as np
from data import folders, images
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


def ages(net, random, count=205):
    """A table of photos as JPEG, each with its age and three boxes around the face, the arrays pickled."""
    import cv2
    import pandas as pd

    folders(net, "faces", "out")
    boxes = np.array([[(10, 10), (90, 90)], [(20, 20), (80, 80)], [(-5, -5), (105, 105)]])
    photos = random.integers(0, 256, (count, 100, 100, 3)).astype(np.uint8)
    rows = {
        "age": 1 + np.arange(count) % 100,
        "gender": random.integers(0, 2, count).astype(np.float64),
        "image": [cv2.imencode(".jpg", photo)[1].tobytes() for photo in photos],
        "org_box": [boxes[0].dumps()] * count,
        "trible_box": [boxes.dumps()] * count,
        "landmarks": [np.zeros(10).dumps()] * count,
        "roll": np.zeros(count), "yaw": np.zeros(count), "pitch": np.zeros(count),
    }  # fmt: skip
    pd.DataFrame(rows).to_feather(str(net / "faces" / "wiki.feather"))


def celebrities(folder, random, people=6, photos=4):
    """Photos of faces, a folder a person."""
    for person in range(people):
        images(folder / ("person%d" % person), random, photos, (112, 112))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/PRNET_ID0727_for_TensorFlow",
        "train.py --root_train_data_dir={net}/faces --batch_size=1 --epochs=1",
        positions,
        mode="allow_fp32_to_fp16",
        checkpoint="checkpoint/256_256_resfcn256_weight_0.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/C3AE_ID1250_for_TensorFlow",
        "nets/c3ae_npu.py --dataset={net}/faces -s={net}/out -epochs=1 -white -se --batch_size=20",
        ages,
        mode="allow_fp32_to_fp16",
        checkpoint="out/c3ae_npu_train.h5",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/CircleLoss_ID1221_for_TensorFlow",
        "train_acc.py --max_nrof_epochs=1 --data_dir={net}/faces --lfw_dir= --batch_size=4 --epoch_size=3 "
        "--models_base_dir={net}/out --logs_base_dir={net}/logs",
        lambda net, random: celebrities(net / "faces", random),
        checkpoint="out/**/*.index",
        limit=600,
    ),
)
