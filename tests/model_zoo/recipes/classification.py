"""Classification of small images and of movements, none of them photographs."""

import pickle

import numpy as np
from data import folders, images, mnist, tfrecords, write
from recipe import Recipe

BUILT_IN = "TensorFlow/built-in/cv/image_classification/"


def matlab(path, arrays):
    """A MATLAB file of named arrays."""
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(str(path), arrays)


def faces(path, random, count=100, classes=10):
    """Images of 32 by 32 as columns, and a class each."""
    matlab(path, {"features": random.random((1024, count)), "Label": np.arange(count) % classes + 1})


def house_numbers(path, random, count=64):
    """Colour images of 32 by 32, the image's number last, and a digit each, where 10 is a zero."""
    pixels = random.integers(0, 256, (32, 32, 3, count)).astype(np.uint8)
    matlab(path, {"X": pixels, "y": (np.arange(count) % 10 + 1)[:, None].astype(np.uint8)})


def postal_digits(path, random, count=100):
    """Digits of 16 by 16 as rows, and a class each, counted from 1."""
    matlab(path, {"X": random.random((count, 256)).astype(np.float32), "Y": (np.arange(count) % 10 + 1)[:, None]})


def cifar_features(folder, random, count=60):
    """CIFAR-10 as records of whitened floats, in the three parts that semi-supervised training reads."""
    for part in ("labeled_train", "unlabeled_train", "test"):
        images = random.normal(size=(count, 3072)).astype(np.float32)
        rows = [{"image": image, "label": np.array([n % 10])} for n, image in enumerate(images)]
        tfrecords(folder / (part + ".tfrecords"), rows)


def episodes(path, random, dimensions=16, classes=6, count=200, ways=2):
    """Features and classes of seen and unseen images, and episodes of `ways` unseen classes with 1 and 5 shots."""
    parts = []
    for _ in ("train", "test"):
        labels = np.eye(classes, dtype=np.float32)[np.arange(classes * count) % classes]
        parts += [random.normal(size=(len(labels), dimensions)).astype(np.float32), labels]
    for shots in (1, 5):
        labels = np.repeat(np.eye(classes, dtype=np.float32)[:ways, None], shots, 1)
        parts.append([(random.normal(size=(ways, shots, dimensions)).astype(np.float32), labels)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(parts))


def tasks(folder, random, classes=5, count=16):
    """Images of 84 by 84, a folder a class, to learn from and to validate with."""
    for part in ("train", "val"):
        for number in range(classes):
            images(folder / part / ("n%04d" % number), random, count, (84, 84))


def poses(folder, random, count=42, classes=21):
    """Movements, each of 20 to 40 frames with 15 joints in the plane, and the name of what is done."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        frames = [random.random((random.integers(20, 40), 15, 2)) for _ in range(count)]
        told = {"pose": frames, "label": ["move%02d" % (n % classes) for n in range(count)]}
        (folder / ("GT_%s_1.pkl" % part)).write_bytes(pickle.dumps(told))


def four_arts(net, random, count=24):
    """Seven kinds of things in four arts, their lists, and weights for one of the layers."""
    for art in ("art_painting", "cartoon", "photo", "sketch"):
        images(net / "arts" / art, random, count, (64, 64), "png")
        write(net / "lists" / (art + ".txt"), "".join("%s/%d.png %d\n" % (art, n, n % 7) for n in range(count)))
    layer = [random.normal(size=(11, 11, 3, 96)) * 0.01, np.zeros(96)]
    np.save(str(net / "alexnet.npy"), {"conv1": [part.astype(np.float32) for part in layer]})


def boxed_photos(folder, random, count=16, size=(96, 128)):
    """Photos as ImageNet's records have them: JPEG, a class, its name and boxes."""
    images(folder / "photos", random, count, size)
    examples = [
        {
            "image/encoded": (folder / "photos" / ("%d.jpg" % n)).read_bytes(), "image/class/text": "a thing",
            "image/class/label": np.array([1 + n % 9]), "image/object/bbox/xmin": np.array([0.1]),
            "image/object/bbox/ymin": np.array([0.1]), "image/object/bbox/xmax": np.array([0.9]),
            "image/object/bbox/ymax": np.array([0.9]),
        }
        for n in range(count)
    ]  # fmt: skip
    for part in ("train", "validation"):
        tfrecords(folder / (part + "-00000-of-00001"), examples)


RECIPES = (
    Recipe(
        BUILT_IN + "Non_Local_Net_ID0274_for_TensorFlow",
        "Non_local_Net.py --data_path={net}/digits --batch_size=2",
        lambda net, random: mnist(net / "digits", random),
        steps=4,
        loss=(1, 10),
        limit=600,
        own_fault="no loss scale, and gradients that float16 cannot hold: at the first step, in float32, 71 of 405 "
        "products and convolutions are above 65504, the largest 3.6e7; an Ascend 910 saturates them",
    ),
    Recipe(
        BUILT_IN + "DSRC_ID1309_for_TensorFlow",
        "dsrc_main.py --epoch=8 --pretrain_step=4 --display_step=4",
        lambda net, random: (faces(net / "data" / "umd.mat", random), folders(net, "logs", "models")),
        mode="allow_fp32_to_fp16",
    ),
    Recipe(
        "TensorFlow/built-in/cv/image_segmentation/RCNN_ID0668_for_TensorFlow",
        "main.py --data_path={net}/data --max_step=3 --batch_size=4 --modeldir={net}/ckpt",
        lambda net, random: house_numbers(net / "data" / "train_32x32.mat", random),
        checkpoint="ckpt/00000003.index",
        loss=(1, 14),  # it sets no seed: eight seeds of TensorFlow 1.15.5 give 2.0 to 9.9
        limit=600,
    ),
    Recipe(
        BUILT_IN + "IMM_ID1170_for_TensorFlow",
        "main.py --epoch=1 --batch_size=500",
        lambda net, random: mnist(net / "MNIST_data", random),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/DD-NET_ID1088_for_TensorFlow",
        "ddnet.py",
        lambda net, random: poses(net / "data" / "JHMDB", random),
        mode="allow_fp32_to_fp16",
        steps=5,
        loss=(2, 6),
    ),
    Recipe(
        "TensorFlow/contrib/cv/dsrc",
        "dsrc_usps_npu.py --max_step=8 --pretrain_step=4 --display_step=4 --data_path={net}/data/",
        lambda net, random: (
            postal_digits(net / "data" / "USPS.mat", random),
            folders(net / "DSRC_ID1309_for_tensorflow", "logs", "models"),
        ),
        cwd="DSRC_ID1309_for_tensorflow",
    ),
    Recipe(
        "TensorFlow/contrib/cv/VAT_ID1002_for_TensorFlow",
        "train_semisup.py --data_url={net}/cifar10 --train_url={net}/out --batch_size=2 "
        "--ul_batch_size=2 --eval_batch_size=2",
        lambda net, random: cifar_features(net / "cifar10" / "seed1", random),
        mode="allow_fp32_to_fp16",
        cwd="code",
        steps=4,
        loss=(1, 20),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/DeltaEncoder_ID1273_for_TensorFlow",
        "main.py --path={net}/data/mIN.pkl --num_epoch=2",
        lambda net, random: (episodes(net / "data" / "mIN.pkl", random), folders(net, "test/output")),
        steps=380,  # 375 are a classifier's; the script ends by saving that one's variables from a session without them
        loss=(0.2, 6),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/MGCNN_ID1039_for_TensorFlow",
        "mgcnn_npu.py -i 1 -e 1 -datapath {net}/data -f maps.npy",
        lambda net, random: (
            folders(net, "data/sigma035"),
            np.save(str(net / "data" / "sigma035" / "maps.npy"), random.random((1024, 2000)).astype(np.float32)),
        ),
        checkpoint="output/sigma035/subdir/model/weights0.hdf5",
        loss=(1, 3),
    ),
    Recipe(
        "TensorFlow/contrib/cv/ProtoAttend_ID2040_for_TensorFlow",
        "main_protoattend.py --num_steps=5 --batch_size=16 --example_cand_size=32 --eval_cand_size=32 "
        "--data_url={net}/fashion --train_url={net}/out",
        lambda net, random: mnist(net / "fashion", random, 200, 64),
        mode="allow_fp32_to_fp16",
        steps=4,  # the evaluation that follows asks for no NPU: use_off_line is False
        loss=(1, 20),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/META-SGD_ID1236_for_TensorFlow",
        "main_npu.py --data_path={net}/mini/ --metatrain_iterations=3 --meta_batch_size=1 --num_updates=1 "
        "--num_filters=8 --max_pool=True --num_total_batches_train=2 --num_total_batches_test=2 --logdir={net}/out "
        "--summary_interval=1",
        lambda net, random: tasks(net / "mini", random),
        checkpoint="out/**/model2.index",
        loss=(0.5, 20),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/MASF_ID1191_for_TensorFlow",
        "main.py --dataroot={net}/arts --filelist_root={net}/lists --weights_path={net}/alexnet.npy "
        "--train_iterations=4 --meta_batch_size=6",
        four_arts,
        mode="allow_fp32_to_fp16",
        checkpoint="log/masf_*/itr*.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/cv/image_classification/MobileNetV2_ID0074_for_TensorFlow",
        "train.py --dataset_dir={net}/photos --max_train_steps=4 --iterations_per_loop=1 --model_name=mobilenet_v2 "
        "--moving_average_decay=0.9999 --label_smoothing=0.1 --preprocessing_name=inception_v2 --weight_decay=0.00004 "
        "--batch_size=4 --learning_rate_decay_type=cosine_annealing --learning_rate=0.1 --optimizer=momentum "
        "--momentum=0.9 --warmup_epochs=5",
        lambda net, random: boxed_photos(net / "photos", random),
        checkpoint="**/model.ckpt-4.index",
        loss=(4, 12),
        limit=600,
    ),
)
