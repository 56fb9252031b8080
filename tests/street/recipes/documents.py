"""Documents as graphs of their words, and other texts that come as numbers."""

import pickle

import numpy as np
from data import cnews
from recipe import Recipe


def word_graphs(folder, random, name="mr", words=12, dimensions=300):
    """Documents of `words` words: a graph and the words' vectors each, with one of two classes, pickled in parts."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("x", 64), ("tx", 20), ("allx", 80)):
        graphs = [sp.csr_matrix((random.random((words, words)) < 0.4).astype(float)) for _ in range(count)]
        parts = {
            part + "_adj": graphs,
            part + "_embed": random.normal(size=(count, words, dimensions)).tolist(),
            part.replace("x", "y"): np.eye(2)[np.arange(count) % 2],
        }
        for key, value in parts.items():
            (folder / ("ind.%s.%s" % (name, key))).write_bytes(pickle.dumps(value))


def thucnews(folder, random):
    """Chinese news under the file names of THUCNews."""
    cnews(folder, random, lines=16)
    for path in folder.glob("cnews.*"):
        path.rename(path.with_name(path.name.replace("cnews", "thucnews")))


RECIPES = (
    Recipe(
        "TensorFlow/contrib/nlp/texting",
        "train.py --epochs=2 --batch_size=32 --data_url={net}/graphs",
        lambda net, random: word_graphs(net / "graphs", random),
        mode="allow_fp32_to_fp16",
        cwd="texting_ID0193_for_TensorFlow",
        loss=(0.4, 3),
    ),
    Recipe(
        "TensorFlow/contrib/nlp/char-level_cnn",
        "run_cnn.py train",
        lambda net, random: thucnews(net / "CharCNN_tf_huangjinsai" / "data" / "thucnews", random),
        mode="allow_fp32_to_fp16",
        cwd="CharCNN_tf_huangjinsai",
        steps=4,
        limit=600,
    ),
)
