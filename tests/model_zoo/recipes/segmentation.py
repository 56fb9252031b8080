"""Segmentation of images."""

import numpy as np
from data import images, write
from recipe import Recipe

SEGMENTATION = "TensorFlow/built-in/cv/image_segmentation/"


def fields(folder, random, count=6, size=64):
    """Photos and masks of two colours in three parts, and the table of the colours."""
    from PIL import Image

    for part in ("train", "val", "test"):
        images(folder / part, random, count, (size, size), "png")
        (folder / (part + "_labels")).mkdir()
        for number in range(count):
            mask = np.zeros((size, size, 3), np.uint8)
            mask[8 * (number % 4) : size // 2] = 255
            Image.fromarray(mask).save(str(folder / (part + "_labels") / ("%d.png" % number)))
    write(folder / "class_dict.csv", "name,r,g,b\nback,0,0,0\nfield,255,255,255\n")


def sweeps(folder, random, count=32):
    """Sweeps of a laser, 64 by 512 of x, y, z, intensity, range and class, and the list of their names."""
    import joblib

    (folder / "lidar_2d").mkdir(parents=True)
    (folder / "SqueezeNet").mkdir()
    for number in range(count):
        sweep = random.normal(size=(64, 512, 6)) * 5 + 10
        sweep[:, :, 5] = np.arange(512) // 130
        np.save(str(folder / "lidar_2d" / ("sweep%d.npy" % number)), sweep.astype(np.float32))
    joblib.dump({}, str(folder / "SqueezeNet" / "squeezenet_v1.1.pkl"))  # no layer has weights from before
    write(folder / "ImageSet" / "train.txt", "".join("sweep%d\n" % number for number in range(count)))


RECIPES = (
    Recipe(
        SEGMENTATION + "2Dattentionunet_ID0120_for_TensorFlow",
        "mainNPU_v2.py --model=aunet --mode=train --act=true --crop_height=64 --crop_width=64 --batch_size=2 "
        "--num_epochs=1 --data_dir={net}/fields --precision_mode=allow_mix_precision",
        lambda net, random: fields(net / "fields", random),
        loss=(0.3, 3),
        checkpoint="checkpoint/latest_model_*.ckpt.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/squeezeseg_ID0873_for_TensorFlow",
        "src/train.py --data_path={net}/kitti --max_steps=3 --checkpoint_step=2",
        lambda net, random: sweeps(net / "kitti", random),
        checkpoint="outputs/model.ckpt-2.index",
        limit=600,
    ),
)
