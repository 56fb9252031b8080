"""Generative networks that train against each other or encode, on made-up images and texts."""

import pickle

import numpy as np
from data import folders, images, mnist, write
from recipe import Recipe

CV = "TensorFlow/contrib/cv/"


def cifar(folder, random, count=10000):
    """CIFAR-10 as its authors pickled it: five parts and a test part of `each` images."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        pixels = random.integers(0, 256, (count, 3072), np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": [n % 10 for n in range(count)]}))


def faces(folder, random, people=2040):
    """One portrait under many names, and whether each name has what CelebA's five chosen attributes say."""
    attributes = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young")
    images(folder, random, 1, (64, 64), names="portrait%d")
    signs = random.choice(("1", "-1"), (people, len(attributes)))
    lines = ["portrait0.jpg " + " ".join(row) for row in signs]
    write(folder / "attributes.txt", "\n".join([str(people), " ".join(attributes), *lines]) + "\n")


def pairs(folder, random, size, ending="jpg", parts=("train", "val"), sides=("A", "B"), count=8):
    """Images of two kinds, a folder each, in every part."""
    for part in parts:
        for side in sides:
            images(folder / part / side, random, count, size, ending)


def oracle(path, random, words=5000, units=32):
    """The weights of a recurrent network that writes the true sequences, as lists in a pickle that is text."""
    gates = [(units, units), (units, units), (units,)] * 4
    weights = [random.normal(size=shape).tolist() for shape in [(words, units), *gates, (units, words), (words,)]]
    path.write_bytes(pickle.dumps(weights, protocol=0))


def street_numbers(folder, random):
    """Photos of house numbers with a digit each; the last 5000 of the first part are kept to validate with."""
    from scipy.io import savemat

    folder.mkdir(parents=True)
    for part, count in (("train", 5200), ("test", 100)):
        pixels = random.integers(0, 256, (32, 32, 3, count), np.uint8)
        savemat(str(folder / (part + "_32x32.mat")), {"X": pixels, "y": (np.arange(count) % 10 + 1)[:, None]})


RECIPES = (
    Recipe(
        "TensorFlow/built-in/cv/image_classification/DCGAN_ID0260_for_TensorFlow",
        "tensorflow_MNIST_DCGAN.py --precision_mode=allow_mix_precision --batch_size=4 --data_path={net}/digits",
        lambda net, random: mnist(net / "digits", random, 5200, 100),
        steps=4,
        loss=(0.5, 4),
        limit=600,
    ),
    Recipe(
        CV + "CSGM_ID2109_for_TensorFlow",
        "mnist_vae/src/main.py --epochs=2 --data_dir={net}/digits",
        lambda net, random: mnist(net / "digits", random),
        steps=10,
        loss=(300, 2000),
    ),
    Recipe(
        CV + "PixelCNN++_ID2101_for_TensorFlow",
        "train.py -i {net}/images -o {net}/saved -b 2 -u 2 -q 1 -n 8 -x 1",
        lambda net, random: cifar(net / "images" / "cifar-10-python" / "cifar-10-batches-py", random),
        mode="allow_fp32_to_fp16",
        steps=4,
        loss=(4, 30),
        limit=600,
    ),
    Recipe(
        CV + "SeqGAN_ID2096_for_TensorFlow",
        "sequence_gan.py",
        lambda net, random: (folders(net, "save"), oracle(net / "save" / "target_params.pkl", random)),
        mode="allow_fp32_to_fp16",
        steps=10,
        limit=600,
    ),
    Recipe(
        CV + "DualGAN_ID1001NRE_for_TensorFlow",
        "main.py --gcn=4 --dcn=4 --epoch=1 --data_dir={net}/images --result={net}/out",
        lambda net, random: pairs(net / "images", random, (64, 64)),
        mode="allow_fp32_to_fp16",
        steps=8,
        limit=600,
    ),
    Recipe(
        CV + "BicycleGAN_ID1287_for_TensorFlow",
        "main.py --epoch=1 --data_path={net}/maps --output_path={net}/out",
        lambda net, random: pairs(net / "maps", random, (64, 128), sides=("",), count=4),
        mode="allow_fp32_to_fp16",
        steps=3,
        limit=600,
    ),
    Recipe(
        CV + "StarGAN_ID1472_for_TensorFlow",
        "main.py --image_root={net}/faces --metadata_path={net}/faces/attributes.txt --output_dir={net}/out "
        "--batch_size=2 --image_size=64 --g_conv_dim=8 --d_conv_dim=8 --training_iterations=10 --checkpoint_steps=5",
        lambda net, random: faces(net / "faces", random),
        checkpoint="out/checkpoint/model-10.index",
        limit=600,
    ),
    Recipe(
        CV + "fusiongan",
        "main.py {net}/images {net}/out --epoch=1 --batch_size=2",
        lambda net, random: pairs(net / "images", random, (160, 160), "bmp", ("Train_ir", "Train_vi"), ("",), count=1),
        cwd="FusionGAN_ID2124_for_TensorFlow",
        steps=3,
        limit=600,
    ),
    Recipe(
        CV + "UGATIT_ID0722_for_TensorFlow",
        "main.py --epoch=1 --iteration=3 --img_size=128 --n_dis=4 --ch=4 "
        "--data_path={net}/images --output_path={net}/out",
        lambda net, random: pairs(net / "images", random, (64, 64), parts=("",), sides=("trainA", "trainB")),
        mode="allow_fp32_to_fp16",
        checkpoint="out/checkpoint/**/*.index",
        limit=600,
    ),
    Recipe(
        CV + "Self-Attention-GAN_ID0868_for_TensorFlow",
        "main.py --use_npu=1 --epoch=1 --iteration=3 --batch_size=4 --img_size=32 --sample_num=4 "
        "--data_path={net} --output_path={net}/out",
        lambda net, random: images(net / "dataset" / "celebA", random, 8, (40, 40)),
        mode="allow_fp32_to_fp16",
        checkpoint="out/checkpoint/**/*.index",
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/cv/CLUB_ID1254_for_Tensorflow",
        "main_DANN.py --data_path={net}/data/ --save_path={net}/out/",
        lambda net, random: (
            mnist(net / "data" / "MNIST_data", random, 60000, 10000),
            street_numbers(net / "data" / "SVHN", random),
        ),
        cwd="MI_DA",
        steps=9,
        limit=600,
    ),
)
