"""Small networks over tables."""

import numpy as np
from data import folders, write
from recipe import Recipe

FLOWERS = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")


def irises(folder, random, rows=60):
    """Four lengths and a flower's name a line."""
    for part in ("train", "test"):
        lines = []
        for number in range(rows):
            lengths = random.normal(size=4) * 0.3 + 2 + number % 3
            lines.append(",".join([*("%.1f" % length for length in lengths), FLOWERS[number % 3]]))
        write(folder / ("iris." + part), "\n".join(lines) + "\n")


def thyroids(folder, random, rows=400, columns=21):
    """Measurements of patients, few of whom are ill, a patient a line."""
    folders(folder, "model", "results")
    lines = [",".join(["f%d" % n for n in range(columns)] + ["class"])]
    for number in range(rows):
        ill = number % 8 == 0
        lines.append(",".join(["%.4f" % value for value in random.random(columns) + ill] + [str(int(ill))]))
    write(folder / "dataset" / "annthyroid_21feat_normalised.csv", "\n".join(lines) + "\n")


def woods(folder, random, rows=400, bools=44):
    """Ten measures of a place, what else is true of it, and which of seven kinds of trees grow there."""
    for part in ("train", "val", "test"):
        measures = random.integers(0, 300, (rows, 10))
        marks = random.integers(0, 2, (rows, bools))
        kinds = 1 + np.arange(rows)[:, None] % 7
        lines = (",".join(map(str, row)) for row in np.hstack((measures, marks, kinds)))
        write(folder / ("%s_covertype.csv" % part), "\n".join(lines) + "\n")


RECIPES = (
    Recipe(
        "TensorFlow/built-in/cv/image_classification/Multi-Layer_Perceptron_ID0628_for_TensorFlow",
        "mlp.py --precision_mode=allow_mix_precision --training_epochs=1000 --data_path={net}",
        irises,
        checkpoint="ckpt_gpu/model.ckpt.index",
        loss=(0, 40),
    ),
    Recipe(
        "TensorFlow/contrib/cv/DevNet",
        "train.py --epochs=2 --runs=1 --nb_batch=5 --batch_size=64",
        lambda net, random: thyroids(net / "DevNet_ID0223_for_TensorFlow", random),
        cwd="DevNet_ID0223_for_TensorFlow",
        options=("--precision-mode", "allow_mix_precision"),  # the script itself trains on the host (use_npu=False)
        checkpoint="DevNet_ID0223_for_TensorFlow/model/*.index",
        loss=(0.5, 5),
    ),
    Recipe(
        "TensorFlow/contrib/nlp/tabnet",
        "test_experiment_covertype.py",  # the small one of its two, and the one for an NPU
        lambda net, random: woods(net / "data", random),
        mode="allow_fp32_to_fp16",
        steps=4,  # two evaluations of 155,000 lines follow
        limit=600,
    ),
)
