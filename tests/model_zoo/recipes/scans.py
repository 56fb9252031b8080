"""Scans that come as HDF5 files: photographs from within, clouds of points."""

import numpy as np
from data import write
from recipe import Recipe


def arrays_file(path, arrays):
    """An HDF5 file of named arrays."""
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(str(path), "w") as f:
        for name, array in arrays.items():
            f[name] = array


def polyps(folder, random, count=2, size=(256, 320)):
    """Photographs and where in them a polyp is, in two parts."""
    for part in ("train", "val"):
        photographs = random.integers(0, 256, (count, *size, 3)).astype(np.float32)
        masks = 255 * random.integers(0, 2, (count, *size)).astype(np.uint8)
        arrays_file(folder / ("cvcdb_%s.h5" % part), {"images": photographs, "labels": masks})


def clouds(folder, random, count=8, points=2048, classes=40):
    """ModelNet40: objects as points on their surface, and a class each; a text names the files of a part."""
    for part in ("train", "test"):
        path = folder / ("ply_data_%s0.h5" % part)
        labels = (np.arange(count) % classes).astype(np.uint8)[:, None]
        arrays_file(path, {"data": random.normal(size=(count, points, 3)).astype(np.float32), "label": labels})
        write(folder / (part + "_files.txt"), "%s\n" % path)


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/doubleunet",
        "train.py --is_training=True --img_num=1 --batch_size=1 --epochs=1 "
        "--data_path={net}/data --output_path={net}/model/",
        lambda net, random: polyps(net / "data", random),
        mode="allow_fp32_to_fp16",
        cwd="doubleunet_ID0180_for_TensorFlow",
        checkpoint="model/model.ckpt-1.index",
        loss=(0.1, 5),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/pointnet",
        "train.py --batch_size=4 --num_point=64 --max_epoch=1 --log_dir={net}/log",
        lambda net, random: clouds(
            net / "PointNet_ID0266NRE_for_TensorFlow" / "data" / "modelnet40_ply_hdf5_2048", random
        ),
        mode="allow_fp32_to_fp16",
        cwd="PointNet_ID0266NRE_for_TensorFlow",
        checkpoint="log/model.ckpt.index",
        loss=(2, 10),
        limit=600,
    ),
)
