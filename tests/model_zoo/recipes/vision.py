"""Vision: classification of images."""

import numpy as np
from data import folders, mnist, tfrecords
from recipe import Recipe

CV = "TensorFlow/contrib/cv/"


def cifar_records(path, random, count=64):
    """32 by 32 images as raw bytes with a fine and a coarse label."""
    tfrecords(path, [
        {
            "image": random.integers(0, 256, 3072).astype(np.uint8).tobytes(),
            "fine_label": np.array([n % 100]),
            "coarse_label": np.array([n % 20]),
        }
        for n in range(count)
    ])  # fmt: skip


RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/LeNet_ID0127_for_TensorFlow",
        "LeNet.py --steps=20 --precision_mode=allow_mix_precision",
        lambda net, random: (mnist(net / "MNIST", random), folders(net, "test", "output/ckpt_npu")),
        checkpoint="output/ckpt_npu/mode.ckpt.index",
        loss=(2, 4),
    ),
    Recipe(
        CV + "wideresnet",
        "run_wideresnet.py --model_path=None --data_path={net}/records --output_path={net}/out --do_train=True "
        "--image_num=32 --batch_size=8 --epoch=1 --depths=10 --ks=1",
        lambda net, random: cifar_records(net / "records" / "train.tfrecords", random),
        mode="allow_fp32_to_fp16",
        cwd="wideresnet_ID0175_for_TensorFlow",
        checkpoint="out/wideresnet.ckpt-0.index",
        loss=(3, 7),
        limit=600,
    ),
)
