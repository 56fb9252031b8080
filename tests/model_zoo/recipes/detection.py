"""Detection of objects in images."""

from data import images, write
from recipe import Recipe


def boxes(net, random, count=16):
    """Images and two lists of them, a line an image: its path, then left,top,right,bottom,class of each object."""
    images(net / "photos", random, count, (240, 320))
    lines = []
    for number in range(count):
        left, top = random.integers(0, 100, 2)
        right, bottom = left + random.integers(60, 200), top + random.integers(60, 130)
        objects = "%d,%d,%d,%d,%d %d,%d,%d,%d,%d" % (left, top, right, bottom, number % 20, 5, 5, 80, 90, 3)
        lines.append("%s %s" % (net / "photos" / ("%d.jpg" % number), objects))
    for part in ("train", "val"):
        write(net / ("2007_%s.txt" % part), "\n".join(lines) + "\n")


def boxes_and_weights(net, random):
    """The same four, and a file of Keras's weights to begin with, which has none of any layer."""
    import h5py

    boxes(net, random, count=4)
    with h5py.File(str(net / "ckpt.h5"), "w") as f:
        f.attrs["layer_names"] = []


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/YOLOV5_ID0378_for_TensorFlow",
        "train.py --epochs=1 --steps=2 --freeze_flag=0",
        boxes,
        steps=2,
        limit=1200,
    ),
    Recipe(
        "TensorFlow/contrib/cv/YAD2K_ID2086_for_TensorFlow",
        "train.py --dataset={net} --result={net}/out --epochs=1 --batch_size=2",
        boxes_and_weights,
        limit=900,
    ),
)
