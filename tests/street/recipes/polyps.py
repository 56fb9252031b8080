"""Segmentation of images that come as one HDF5 file a part."""

import numpy as np
from recipe import Recipe


def hdf5(path, arrays):
    """An HDF5 file of named arrays."""
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(str(path), "w") as f:
        for name, array in arrays.items():
            f[name] = array


def polyps(folder, random, count=4, size=(64, 64)):
    """Photographs and where in them a polyp is, in two parts."""
    for part in ("train", "val"):
        photographs = random.integers(0, 256, (count, *size, 3)).astype(np.float32)
        masks = 255 * random.integers(0, 2, (count, *size)).astype(np.uint8)
        hdf5(folder / ("cvcdb_%s.h5" % part), {"images": photographs, "labels": masks})


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/doubleunet",
        "train.py --is_training=True --img_num=4 --batch_size=2 --epochs=1 --_HEIGHT=64 --_WIDTH=64 "
        "--data_path={net}/data --output_path={net}/model/",
        lambda net, random: polyps(net / "data", random),
        mode="allow_fp32_to_fp16",
        cwd="doubleunet_ID0180_for_TensorFlow",
        checkpoint="model/model.ckpt-1.index",
        loss=(0.1, 5),
        limit=600,
    ),
)
