"""Collections of short scripts that teach TensorFlow 1."""

import shutil

from data import mnist
from recipe import Recipe

QUIET = {"MPLBACKEND": "Agg"}  # their plots wait for someone to close the window

SAVER = "05 - TensorBoard, Saver"
CONVOLUTIONAL = "6_Convolutional_Neural_Network/code"

RECIPES = (
    Recipe(
        "MorvanZhou/Tensorflow-Tutorial",
        "303_save_reload.py",
        cwd="tutorial-contents",
        commit="42dc32de53",
        env=QUIET,
        checkpoint="tutorial-contents/params.index",
    ),
    Recipe(
        "nlintz/TensorFlow-Tutorials",
        "05_convolutional_net.py",
        lambda net, random: mnist(net / "MNIST_data", random, train=5400, test=300),
        commit="d6bdab7df4",
        steps=4,
    ),
    Recipe(
        "aymericdamien/TensorFlow-Examples",
        "examples/3_NeuralNetworks/dynamic_rnn.py",
        commit="6dcbe14649",
        steps=10,
    ),
    Recipe(
        "tensorpack/tensorpack",
        "examples/basics/mnist-convnet.py",
        lambda net, random: mnist(net / "sets" / "mnist_data", random, train=6000, test=300),
        commit="1547a54e85",
        path=["."],
        env={"TENSORPACK_DATASET": "{net}/sets"},
        steps=6,
        apart=0.3,  # dropout
    ),
    Recipe(
        "golbin/TensorFlow-Tutorials",
        "'01 - Saver.py'",
        lambda net, random: shutil.rmtree(str(net / SAVER / "model")),  # another network's
        cwd=SAVER,
        commit="c8ac1e45ca",
        checkpoint=SAVER + "/model/dnn.ckpt-2.index",
        again="'01 - Saver.py'",
    ),
    Recipe(
        "princewen/tensorflow_practice",
        "resnet_mnist.py",
        lambda net, random: mnist(net / "CV" / "ResNet" / "MNIST_data", random, train=5400, test=300),
        cwd="CV/ResNet",
        commit="b3696f757a",
        steps=4,
        apart=0.3,  # dropout
    ),
    Recipe(
        "wiseodd/generative-models",
        "vae_tensorflow.py",
        lambda net, random: mnist(net / "MNIST_data", random, train=5400, test=300),
        cwd="VAE/vanilla_vae",
        commit="b930d5fa9e",
        env=QUIET,
        steps=8,
        apart=0.3,  # draws from the latent space
    ),
    Recipe(
        "chiphuyen/stanford-tensorflow-tutorials",
        "07_convnet_mnist.py",
        lambda net, random: mnist(net / "examples" / "data" / "mnist", random, train=6000, test=300, compressed=False),
        cwd="examples",
        commit="51e53daaa2",
        env=QUIET,
        steps=8,
        apart=0.3,  # dropout
    ),
    Recipe(
        "easy-tensorflow/easy-tensorflow",
        "main.py",
        lambda net, random: mnist(net / CONVOLUTIONAL / "MNIST_data", random, train=5400, test=300),
        cwd=CONVOLUTIONAL,
        commit="4413f921ef",
        env=QUIET,
    ),
    Recipe(
        "yongyehuang/Tensorflow-Tutorial",
        "train.py",
        lambda net, random: mnist(net / "data" / "MNIST_data", random, train=5400, test=300),
        cwd="models/m01_batch_normalization",
        commit="88b5cdbdf4",
        steps=8,
        loss=(1.5, 4),
        apart=0.3,  # dropout
    ),
    Recipe(
        "hwalsuklee/tensorflow-mnist-VAE",
        "run_main.py --dim_z=5 --num_epochs=1 --n_hidden=32",
        lambda net, random: mnist(net / "data", random, train=60000, test=10000),
        commit="e7903ac398",
        steps=8,
        apart=0.3,  # draws from the latent space
    ),
    Recipe(
        "taki0112/Densenet-Tensorflow",
        "Densenet_MNIST.py",
        lambda net, random: mnist(net / "MNIST" / "MNIST_data", random, train=5400, test=300),
        cwd="MNIST",
        commit="dd2db93c52",
        own_fault="it multiplies a Dimension by 0.5, which TensorFlow 1.15 refuses with the same TypeError",
    ),
    Recipe(
        "hunkim/DeepLearningZeroToAll",
        "lab-12-2-char-seq-rnn.py",
        commit="60c707e02a",
        loss=(1, 4),
    ),
    Recipe(
        "pkmital/tensorflow_tutorials",
        "08_denoising_autoencoder.py",
        lambda net, random: mnist(net / "python" / "MNIST_data", random, train=5400, test=300),
        cwd="python",
        commit="c3eefe5997",
        env=QUIET,
        steps=8,
        apart=0.3,  # noise
    ),
)
