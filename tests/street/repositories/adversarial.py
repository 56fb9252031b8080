"""Generative networks that train against each other, on made-up images."""

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
