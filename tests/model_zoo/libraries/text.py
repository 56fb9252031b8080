"""Libraries of language."""

from libraries.layers import PROBABILITY
from recipe import Recipe
from repositories.text import small_gpt

# the real one of the time, and the Keras that TensorFlow 2.15 needs beside it
KERAS = "keras==2.2.4 keras-applications==1.0.8 keras-preprocessing==1.1.2 tf_keras==2.15.1 "
OF_BERT = (
    "keras-bert==0.81.0 keras-transformer==0.33.0 keras-pos-embd==0.11.0 keras-multi-head==0.22.0 "
    "keras-self-attention==0.41.0 keras-layer-normalization==0.14.0 keras-position-wise-feed-forward==0.6.0 "
    "keras-embed-sim==0.8.0 "
)
RECIPES = (
    Recipe("bert-tensorflow", "train.py", install="bert-tensorflow==1.0.1", checkpoint="model/model.ckpt-8.index"),
    Recipe(
        "OpenNMT-tf",
        "train.py",
        install="OpenNMT-tf==1.25.3 pyonmttok rouge",
        checkpoint="run/model.ckpt-8.index",
        limit=600,
    ),
    Recipe(
        "tensor2tensor",
        "train.py",
        install="tensor2tensor==1.15.7 mesh-tensorflow==0.1.21 " + PROBABILITY + " "
        "tensorflow-datasets==1.3.2 tensorflow-hub==0.7.0 gym==0.17.3 sympy==1.5 mpmath pypng "
        "google-api-python-client==1.7.12 oauth2client",
        checkpoint="out/model.ckpt-6.index",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "keras-bert",
        "train.py",
        install=KERAS + OF_BERT.strip(),
        checkpoint="bert.h5",
    ),
    Recipe(
        "kashgari",
        "train.py",
        install="kashgari-tf==0.5.5 " + OF_BERT + "keras-gpt-2==0.14.0 seqeval==0.0.10",
        checkpoint="classifier/model_weights.h5",
        env={"TF_KERAS": "1"},  # keras-bert then takes tf.keras
    ),
    Recipe("gpt-2-simple", "train.py", small_gpt, install="gpt-2-simple==0.7.1", checkpoint="checkpoint/run1/*.index"),
    Recipe("textgenrnn", "train.py", install=KERAS + "textgenrnn==1.5.0", checkpoint="words_weights.hdf5"),
    Recipe("texar", "train.py", install="texar==0.2.4 funcsigs sentencepiece", checkpoint="model.ckpt.index"),
)
