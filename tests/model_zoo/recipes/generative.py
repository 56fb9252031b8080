"""Generative networks: two that train against each other, flows, pixel by pixel."""

import numpy as np
from data import mnist, tfrecords
from recipe import Recipe


def faces(folder, random, count=16, size=32):
    """Faces as bytes with their shapes, in records of which the name tells size and number."""
    for part in ("train", "validation"):
        pixels = random.integers(0, 256, (count, size, size, 3)).astype(np.uint8)
        told = {"shape": np.array([size, size, 3]), "label": np.zeros(1, int)}
        rows = [{**told, "data": face.tobytes()} for face in pixels]
        tfrecords(folder / part / ("%s-r05-s-0-of-1.tfrecords" % part), rows)


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
    Recipe(
        "TensorFlow/contrib/cv/Glow_ID2085_for_TensorFlow",
        "train.py --problem=celeba --image_size=32 --data_dir={net}/faces --n_train=16 --n_test=8 --n_batch_train=4 "
        "--n_batch_init=4 --epochs=3 --epochs_full_valid=2 --width=16 --depth=2 --n_levels=2 --verbose",
        lambda net, random: faces(net / "faces", random),
        mode="allow_fp32_to_fp16",
        checkpoint="logsmodel_best_loss.ckpt.index",
        limit=600,
    ),
)
