"""Libraries of layers, of training loops and of optimizers."""

from recipe import Recipe

PROBABILITY = "tensorflow-probability==0.23.0"  # the one that TensorFlow 2.15 takes, in the place of the libraries' own
SONNET = "dm-sonnet==1.36 semantic_version contextlib2 " + PROBABILITY
RECIPES = (
    Recipe("tflearn", "train.py", install="tflearn==0.5.0", checkpoint="model.tflearn.index"),
    Recipe("tensorpack", "train.py", install="tensorpack==0.11 tabulate msgpack", checkpoint="log/model-*.index"),
    Recipe("tensorflow-hub", "train.py", install="tensorflow-hub==0.7.0", checkpoint="exported/variables/*.index"),
    Recipe(
        "tensorlayer",
        "train.py",
        install="tensorlayer==1.11.1 progressbar2 lxml",
        checkpoint="model.npz",
        env={"NPU_SHIM_PICKLES": "on"},  # its files of parameters are pickles, which NumPy read unasked until 1.16.2
    ),
    Recipe("dm-sonnet", "train.py", install=SONNET, checkpoint="model.ckpt.index"),
    Recipe("tf-slim", "train.py", install="tf-slim==1.1.0", checkpoint="log/model.ckpt-8.index"),
    Recipe("kfac", "train.py", install="kfac==0.2.3 " + PROBABILITY, checkpoint="model.ckpt.index"),
    Recipe("nengo-dl", "train.py", install="nengo-dl==2.2.0 nengo==2.8.0 progressbar2", checkpoint="params.index"),
)
