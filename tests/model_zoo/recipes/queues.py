"""Input by queues and threads, as before tf.data."""

from data import folders
from recipe import Recipe


def patches(folder, random, count=200, size=41):
    """Patches of images and their blurred forms as .mat files of numbers: N.mat and N_2.mat."""
    import scipy.io

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        patch = random.random((size, size)).astype("float32")
        for name, values in (("%d.mat", patch), ("%d_2.mat", patch * 0.5 + 0.25)):
            scipy.io.savemat(str(folder / (name % number)), {"patch": values})


def house_numbers(folder, random, count=128):
    """Digits in colour as SVHN writes them: .mat files with images last to first dimension, and classes 1 to 10."""
    import scipy.io

    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        pixels = random.integers(0, 256, (32, 32, 3, count)).astype("uint8")
        classes = random.integers(1, 11, (count, 1)).astype("uint8")
        scipy.io.savemat(str(folder / (part + "_32x32.mat")), {"X": pixels, "y": classes})


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/VDSR_ID2114_for_TensorFlow",
        "VDSR.py --MAX_EPOCH=2 --data_url={net}/patches",
        lambda net, random: (patches(net / "patches", random), folders(net, "checkpointC")),
        steps=3,
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/ADDA_ID1026_for_TensorFlow",  # its datasets hang on FeedingQueueRunner
        "tools/train.py svhn train lenet lenet_svhn --iterations 30 --batch_size 16 --solver adam",
        lambda net, random: house_numbers(net / "data" / "svhn", random),
        steps=8,
        loss=(1.5, 4),
    ),
)
