"""Scans that come as arrays: photographs from within, clouds of points, magnetic resonance, land in many colours."""

import numpy as np
from data import images, write
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


def resonances(path, random, count=8, size=32):
    """Complex images of a slice, and which lines of their Fourier transform were measured."""
    image = random.normal(size=(count, size, size)) + 1j * random.normal(size=(count, size, size))
    measured = np.broadcast_to(random.random((count, size, 1)) < 0.5, image.shape)
    arrays_file(path, {"label": image.astype(np.complex64), "mask": measured.astype(np.float32)})


def fields(folder, random, side=16, bands=20, classes=16):
    """A picture of fields in many bands, and what grows in each pixel."""
    import scipy.io

    folder.mkdir(parents=True)
    scipy.io.savemat(str(folder / "Salinas_corrected.mat"), {"salinas_corrected": random.random((side, side, bands))})
    crops = random.permutation(np.arange(side * side) % classes + 1).reshape(side, side).astype(np.uint8)
    scipy.io.savemat(str(folder / "Salinas_gt.mat"), {"salinas_gt": crops})


def scene(folder, random, views=3, size=(128, 160)):
    """Photos of one place from several sides, the camera of each, and how far away is what it shows."""
    place = folder / "place"
    images(place / "blended_images", random, views, size, names="%08d_masked")
    (place / "rendered_depth_maps").mkdir()
    lines = [str(views)]
    for view in range(views):
        moved = np.eye(4)
        moved[0, 3] = 0.1 * view
        lens = np.array([[100, 0, size[1] / 2], [0, 100, size[0] / 2], [0, 0, 1]])
        near, step, steps, far = 2.0, 0.5, 16, 10.0
        numbers = [*map(str, moved.ravel()), "intrinsic", *map(str, lens.ravel()), *map(str, (near, step, steps, far))]
        write(place / "cams" / ("%08d_cam.txt" % view), "extrinsic " + " ".join(numbers) + "\n")
        depths = random.uniform(3, 9, size).astype("<f4")
        header = b"Pf\n%d %d\n-1.0\n" % (size[1], size[0])
        (place / "rendered_depth_maps" / ("%08d.pfm" % view)).write_bytes(header + depths.tobytes())
        near_by = [other for other in range(views) if other != view]
        lines += [str(view), " ".join([str(len(near_by)), *("%d 1.0" % other for other in near_by)])]
    write(place / "cams" / "pair.txt", "\n".join(lines) + "\n")
    write(folder / "BlendedMVS_training.txt", "place\n")


RECIPES = (
    Recipe(
        "TensorFlow/contrib/cv/CascadeNet_ID2121_for_TensorFlow",
        "train.py --batch_size=2 --image_size=32 --num_epoch=3 --Dn=3 --Dc=2 --save_ckpt_Dir={net}/out "
        "--data_train_dir={net}/scans.hdf5",
        lambda net, random: resonances(net / "scans.hdf5", random),
        checkpoint="out/*/model-3.index",
        loss=(0.1, 10),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/HybridSN_ID1160_for_TensorFlow",
        "Hybrid-Spectral-Net.py --datapath={net} --train_step=3 --train_url={net}/out/",
        lambda net, random: fields(net / "data", random),
        mode="allow_fp32_to_fp16",
        checkpoint="out/cp.ckpt.index",
        loss=(2, 4),
        limit=600,
    ),
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
    Recipe(
        "TensorFlow/contrib/cv/MVSNet_ID2116_for_TensorFlow",
        "train.py --blendedmvs_data_root={net}/scenes --log_folder={net}/log --model_folder={net}/out --max_w=160 "
        "--max_h=128 --max_d=8 --epoch=1",
        lambda net, random: scene(net / "scenes", random),
        mode="allow_fp32_to_fp16",
        cwd="MVSNet/mvsnet",
        checkpoint="out/GRU/model.ckpt-5.index",
        limit=900,
    ),
)
