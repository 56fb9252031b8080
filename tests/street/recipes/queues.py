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


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/VDSR_ID2114_for_TensorFlow",
        "VDSR.py --MAX_EPOCH=2 --data_url={net}/patches",
        lambda net, random: (patches(net / "patches", random), folders(net, "checkpointC")),
        steps=3,
        limit=600,
    ),
)
