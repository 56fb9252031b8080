"""Sound and photographs: speech is made, objects are found."""

import json

import numpy as np
from data import images, tfrecords, waves, write
from recipe import Recipe
from recipes.adversarial import pairs


def recordings(net, random):
    """Recordings of two words, and a small network's parameters."""
    waves(net / "corpus", random, ("a", "b"), 3, seconds=0.5)
    size = {
        "filter_width": 2, "sample_rate": 16000, "dilations": [1, 2, 4, 1, 2, 4], "residual_channels": 8,
        "dilation_channels": 8, "quantization_channels": 256, "skip_channels": 16, "use_biases": True,
        "scalar_input": False, "initial_filter_width": 32,
    }  # fmt: skip
    write(net / "small.json", json.dumps(size))


def boxed_photos(net, random, count=8):
    """Photographs and what is on them, each with its box, in Pascal VOC's records."""
    images(net / "photos", random, count, (120, 160))
    rows = []
    for number in range(count):
        top, left = random.random(2) * 0.4
        box = {"ymin": top, "xmin": left, "ymax": top + 0.5, "xmax": left + 0.5}
        rows.append({
            "image/encoded": (net / "photos" / ("%d.jpg" % number)).read_bytes(), "image/format": "JPEG",
            "image/height": np.array([120]), "image/width": np.array([160]), "image/channels": np.array([3]),
            "image/shape": np.array([120, 160, 3]),
            **{"image/object/bbox/" + side: np.array([value], np.float32) for side, value in box.items()},
            "image/object/bbox/label": np.array([1 + number % 20]),
            "image/object/bbox/difficult": np.array([0]), "image/object/bbox/truncated": np.array([0]),
        })  # fmt: skip
    tfrecords(net / "records" / "voc_2007_train_000.tfrecord", rows)


WAVENET = "--wavenet_params=small.json --sample_size=2000 --data_dir=corpus --silence_threshold=0 --logdir=logs "

RECIPES = (
    Recipe(
        "ibab/tensorflow-wavenet",
        "train.py --num_steps=6 --checkpoint_every=3 " + WAVENET,
        recordings,
        commit="3c973c038c",
        checkpoint="logs/model.ckpt-5.index",
        again="train.py --num_steps=8 --checkpoint_every=3 " + WAVENET,
        loss=(3, 8),
        apart=0.3,  # a queue: which recordings come is not known
    ),
    Recipe(
        "balancap/SSD-Tensorflow",
        "train_ssd_network.py --train_dir=out --dataset_dir=records --dataset_name=pascalvoc_2007 --batch_size=1 "
        "--max_number_of_steps=2 --num_readers=1 --num_preprocessing_threads=1",
        boxed_photos,
        commit="e0e3104d3a",
        checkpoint="out/model.ckpt-2.index",
        limit=600,
        apart=1000.0,  # a queue: the loss of a crop without an object is 0.2, with one above 100
    ),
    Recipe(
        "jakeret/tf_unet",
        "scripts/launcher.py",
        path=["."],
        commit="0dcdf2ff1e",
        steps=4,
        loss=(0.2, 2),
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "hardikbansal/CycleGAN",
        "main.py",
        lambda net, random: pairs(
            net / "input" / "horse2zebra", random, (64, 64), parts=("",), sides=("trainA", "trainB")
        ),
        commit="a0d07f69ae",
        own_fault="main.py:247 initializes global variables alone, and names of files are local ones since TensorFlow "
        "1.0: 1.15 refuses with the same FailedPreconditionError",
    ),
)
