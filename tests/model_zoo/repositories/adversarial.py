"""Generative networks that train against each other, on made-up images."""

import numpy as np
from data import images, mnist, tfrecords
from recipe import Recipe
from recipes.adversarial import cifar, faces, pairs


def portraits(net, random):
    """Portraits and their attributes where the script looks for CelebA."""
    folder = net / "dataset" / "celebA"
    faces(folder / "train", random)
    (folder / "train" / "attributes.txt").rename(folder / "list_attr_celeba.txt")


def fruit(net, random):
    """Images of two kinds, as JPEG in records."""
    for name in ("apple", "orange"):
        images(net / name, random, 6, (64, 64))
        photos = [(net / name / ("%d.jpg" % n)).read_bytes() for n in range(6)]
        rows = [{"image/file_name": "%d.jpg" % n, "image/encoded_image": photo} for n, photo in enumerate(photos)]
        tfrecords(net / "data" / (name + ".tfrecords"), rows)


def portraits_as_bytes(net, random, side=32, count=32):
    """Portraits in the records that a flow reads, in two parts."""
    for part in ("train", "validation"):
        rows = [
            {
                "shape": np.array([side, side, 3]),
                "data": random.integers(0, 256, (side, side, 3)).astype(np.uint8).tobytes(),
                "label": np.array([0]),
            }
            for _ in range(count)
        ]
        tfrecords(net / "records" / part / (part + "-r05-s-0000-of-0001.tfrecords"), rows)


SIDES = ("trainA", "trainB", "testA", "testB")

RECIPES = (
    Recipe(
        "carpedm20/DCGAN-tensorflow",
        # of other images it makes floats, which Pillow has never taken
        "main.py --dataset=mnist --data_dir=data --input_height=28 --output_height=28 --batch_size=4 --epoch=1 "
        "--ckpt_freq=2 --sample_freq=3 --out_name=out1 --train",
        lambda net, random: mnist(net / "data" / "mnist", random, train=60000, test=10000, compressed=False),
        commit="62c9a2a7f7",
        steps=8,
        checkpoint="out/out1/checkpoint/*.index",
        again="main.py --dataset=mnist --data_dir=data --input_height=28 --output_height=28 --batch_size=4 "
        "--out_name=out1",
        limit=600,
        apart=1.0,  # two networks against each other
    ),
    Recipe(
        "taki0112/StarGAN-Tensorflow",
        "main.py --epoch=1 --iteration=3 --batch_size=2 --img_size=32 --ch=4 --n_dis=3 --n_res=1 --n_critic=1 "
        "--save_freq=2 --print_freq=2",
        portraits,
        commit="277bfc3323",
        checkpoint="checkpoint/**/*.index",
        again="main.py --phase=test --epoch=1 --iteration=3 --batch_size=2 --img_size=32 --ch=4 --n_dis=3 --n_res=1",
        limit=600,
        apart=1.0,
    ),
    Recipe(
        "taki0112/UGATIT",
        "main.py --epoch=1 --iteration=2 --img_size=64 --n_dis=4 --ch=4 --dataset=two --print_freq=2 --save_freq=2",
        lambda net, random: pairs(net / "dataset" / "two", random, (64, 64), parts=("",), sides=SIDES, count=3),
        commit="d508e8f518",
        checkpoint="checkpoint/**/*.index",
        again="main.py --phase=test --img_size=64 --n_dis=4 --ch=4 --dataset=two",
        limit=600,
        apart=1.0,
    ),
    Recipe(
        "xhujoy/CycleGAN-tensorflow",
        "main.py --dataset_dir=two --epoch=1 --load_size=72 --fine_size=64 --ngf=4 --ndf=4 --save_freq=3",
        lambda net, random: pairs(net / "datasets" / "two", random, (64, 64), parts=("",), sides=SIDES, count=3),
        commit="bd19873a2e",
        checkpoint="checkpoint/**/*.index",
        again="main.py --phase=test --dataset_dir=two --fine_size=64 --ngf=4 --ndf=4",
        limit=600,
        apart=1.0,  # two networks against each other
    ),
    Recipe(
        "taki0112/Self-Attention-GAN-Tensorflow",
        "main.py --epoch=1 --iteration=2 --batch_size=2 --img_size=16 --sample_num=4 --print_freq=2 --save_freq=2",
        lambda net, random: images(net / "dataset" / "celebA", random, 8, (40, 40)),
        commit="6c073a4c8b",
        checkpoint="checkpoint/**/*.index",
        limit=600,
        apart=1.0,
    ),
    Recipe(
        "openai/glow",
        "train.py --problem=celeba --data_dir={net}/records --image_size=32 --n_train=32 --n_test=5 --n_batch_train=8 "
        "--n_batch_init=8 --width=16 --depth=2 --n_levels=2 --epochs=2 --epochs_full_valid=1",
        portraits_as_bytes,
        commit="91b2c577a5",
        checkpoint="logs/model_best_loss.ckpt.index",
        again="train.py --problem=celeba --data_dir={net}/records --image_size=32 --n_train=32 --n_test=5 "
        "--n_batch_train=8 --n_batch_init=8 --width=16 --depth=2 --n_levels=2 --epochs=1 "
        "--restore_path={net}/logs/model_best_loss.ckpt",
        limit=600,
        apart=0.3,  # noise
    ),
    Recipe(
        "vanhuyz/CycleGAN-TensorFlow",
        "train.py --image_size=32 --ngf=4 --X=data/apple.tfrecords --Y=data/orange.tfrecords",
        fruit,
        commit="befe2f5703",
        steps=4,
        limit=600,
        apart=1.0,  # queues: which images come is not known
    ),
    Recipe(
        "openai/pixel-cnn",
        "train.py -i {net}/images -o {net}/saved -b 2 -u 2 -q 1 -n 8 -x 1 -g 1",
        lambda net, random: cifar(net / "images" / "cifar-10-python" / "cifar-10-batches-py", random),
        commit="bbc15688dd",
        steps=3,
        loss=(4, 30),
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "hwalsuklee/tensorflow-generative-model-collections",
        "main.py --gan_type=VAE --epoch=1 --batch_size=64",
        lambda net, random: mnist(net / "data" / "mnist", random, train=60000, test=10000),
        commit="3abde8a9bc",
        steps=3,
        limit=600,
        apart=0.3,  # draws from the latent space
    ),
    Recipe(
        "tegg89/SRCNN-Tensorflow",
        "main.py --epoch=1",
        commit="78be1a2469",
        steps=6,
        loss=(0, 1),
    ),
)
