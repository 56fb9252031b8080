"""Networks over sequences that are no text."""

import numpy as np
from data import mnist, write
from recipe import Recipe

SIGNALS = [kind + "_" + axis for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def phones(folder, random, rows=60, steps=128):
    """What phones in pockets measured: nine signals of 128 steps a row, and one of six activities."""
    for part in ("train", "test"):
        for signal in SIGNALS:
            values = random.normal(size=(rows, steps))
            lines = "\n".join(" ".join("%.4e" % value for value in row) for row in values)
            write(folder / part / "Inertial Signals" / ("%s_%s.txt" % (signal, part)), lines + "\n")
        activities = np.arange(rows) % 6 + 1
        write(folder / part / ("y_%s.txt" % part), "\n".join(map(str, activities)) + "\n")


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/LSTM-HAR_ID2084_for_TensorFlow",
        "config_dataset_HAR_6_classes.py --data_path={net}/har/ --output_path={net}/out/ --epochs=1 --batch_size=20",
        lambda net, random: phones(net / "har", random),
        steps=4,
        loss=(1, 60),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/dilatedrnn",
        "train.py -type=RNN -batch_size=8 -epoch=4 -dataset={net}/digits -savemodel={net}/saved/",
        lambda net, random: mnist(net / "digits", random),
        cwd="DilatedRNN_ID0927_for_TensorFlow",
        steps=4,
        loss=(1.5, 9),  # weights of the output are unseeded normal numbers: 4.0 to 5.8 in four runs
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/TCN_ID1231_for_TensorFlow",
        "copymem_test.py --batch_size=8 --blank_len=80 --levels=4 --epochs=1",
        cwd="copymem",
        mode="allow_fp32_to_fp16",
        steps=10,
    ),
)
