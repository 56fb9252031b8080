"""Recognition: text in images, digits out of place or made of points, actions in videos."""

import json

import numpy as np
from data import folders, images, tfrecords, write
from recipe import Recipe


def sums(folder, random, count=16):
    """Images of sums, the sum in the name of the file."""
    for part in ("train", "val"):
        images(folder / part, random, count, (60, 180), "png")
        for number in range(count):
            sum_of = "%d+%d" % tuple(random.integers(0, 10, 2))
            (folder / part / ("%d.png" % number)).rename(folder / part / ("%d_%s.png" % (number, sum_of)))


def displaced(path, random, count=10000, size=40):
    """Digits somewhere in a larger image, in three parts, in one file."""
    arrays = {}
    for part, rows in (("train", count), ("valid", 100), ("test", 100)):
        arrays["X_" + part] = random.random((rows, size * size)).astype(np.float32)
        arrays["y_" + part] = random.integers(0, 10, (rows, 1))
    path.parent.mkdir(parents=True)
    np.savez(str(path), **arrays)


def videos(net, random, count=5, frames=16):
    """Videos as folders of frames, and two lists of folder and class; the mean frame of all."""
    for number in range(count):
        images(net / "videos" / str(number), random, frames, (120, 160), names="%03d")
    lines = "".join("%s %d\n" % (net / "videos" / str(n), n) for n in range(count))
    for part in ("train", "test"):
        write(net / "lists" / (part + ".list"), lines)
    (net / "code_dir").mkdir()
    np.save(str(net / "code_dir" / "crop_mean.npy"), np.full((frames, 112, 112, 3), 100, np.float32))


def points(folder, random, count=24, size=200):
    """Digits as clouds of points: coordinates, a feature and the digit, in HDF5, and the lists of files."""
    import h5py

    folder.mkdir()
    for part in ("train", "test"):
        with h5py.File(str(folder / (part + "_0.h5")), "w") as f:
            f["data"] = random.normal(size=(count, size, 4)).astype(np.float32)
            f["label"] = random.integers(0, 10, (count, 1))
        write(folder / (part + "_files.txt"), part + "_0.h5\n")


def pedestrians(folder, random, people=36, pictures=5):
    """Pictures of people who walk, 128 by 64, named by person, camera, sequence and box."""
    from PIL import Image

    part = folder / "bounding_box_train"
    part.mkdir(parents=True)
    for number in range(people * pictures):
        picture = random.integers(0, 256, (128, 64, 3)).astype(np.uint8)
        name = "%04d_c%ds1_%06d_01.jpg" % (number // pictures, 1 + number % 3, number)
        Image.fromarray(picture).save(str(part / name))


def words_in_photos(folder, random, count=64, letters=36):
    """Photos of words of 100 by 32 with the numbers of their letters, in records, and the tables of the letters."""
    for part in ("train", "val"):
        rows = []
        for number in range(count):
            word = random.integers(0, letters, random.integers(3, 12))
            pixels = random.integers(0, 256, (32, 100, 3)).astype(np.uint8)
            told = {"images": pixels.tobytes(), "imagepaths": "%d.jpg" % number, "labels": word}
            rows.append({**told, "labels_length": np.array([len(word)])})
        tfrecords(folder / "tfrecords" / (part + "_1.tfrecords"), rows)
    signs = "abcdefghijklmnopqrstuvwxyz0123456789"
    write(folder / "char_dict" / "char_dict.json", json.dumps({str(ord(sign)): sign for sign in signs}))
    write(folder / "char_dict" / "ord_map.json", json.dumps({"%d_index" % n: str(ord(s)) for n, s in enumerate(signs)}))


RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/CNN-CTC_ID0683_for_TensorFlow",
        "main.py --train_dir={net}/sums/train/ --val_dir={net}/sums/val --batch_size=4 --num_gpus=1 --num_epochs=2 "
        "--save_steps=3 --checkpoint_dir={net}/saved --mode=train",
        lambda net, random: sums(net / "sums", random),
        checkpoint="saved/ocr-model-*.index",
        loss=(5, 400),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/STNet_ID2360_for_TensorFlow",
        "train.py --data_path={net}/digits --output_path={net}/out --train_epochs=1",
        lambda net, random: displaced(net / "digits" / "mnist_sequence1_sample_5distortions5x5.npz", random),
        steps=10,
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/C3D_ID2199_for_TensorFlow",
        "train_c3d.py --batch_size=1 --max_steps=1 --data_dir={net}/lists --result={net}/logs "
        "--train_model_url={net}/out",
        videos,
        mode="allow_fp32_to_fp16",
        steps=2,
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/PointCNN_ID0323_for_TensorFlow",
        "train_val_cls.py -t {net}/points/train_files.txt -v {net}/points/test_files.txt -s {net}/saved "
        "-m pointcnn_cls -p NPU -x mnist_x2_l4 --batch_size 4 --epochs 1",
        lambda net, random: points(net / "points", random),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/DeepSort_ID0505_for_TensorFlow",
        "train_market1501.py --number_of_steps=2 --dataset_dir={net}/market --log_dir={net}/out",
        lambda net, random: (pedestrians(net / "market", random), folders(net, "out")),
        checkpoint="out/*/mode.ckpt.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/cv/detection/CRNN_Kernel_ID0055_for_TensorFlow",
        "tools/train_npu.py --dataset_dir={net}/words --char_dict_path={net}/words/char_dict/char_dict.json "
        "--ord_map_dict_path={net}/words/char_dict/ord_map.json --save_dir={net}/out --momentum=0.95 --lr=0.01 "
        "--use_nesterov=True --warmup_step=2 --num_iters=4",
        lambda net, random: words_in_photos(net / "words", random),
        checkpoint="out/shadownet_*.ckpt-4.index",
        limit=900,
    ),
)
