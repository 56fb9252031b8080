"""Documents: classified as graphs of their words or as characters, translated."""

import pickle

import numpy as np
from data import cnews, write
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


def translations(folder, random, lines=24, words=40):
    """Sentences in two languages, in two parts, and the words of both behind four marks."""
    for part in ("train", "eval"):
        for language in ("de", "en"):
            rows = [" ".join("%s%d" % (language, n) for n in random.integers(0, words, 6)) for _ in range(lines)]
            write(folder / ("%s.%s" % (part, language)), "\n".join(rows) + "\n")
    known = ["%s%d" % (language, n) for language in ("de", "en") for n in range(words)]
    write(folder / "vocabulary", "".join("%s\t0\n" % word for word in ["<pad>", "<unk>", "<s>", "</s>", *known]))


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
    Recipe(
        "TensorFlow/contrib/nlp/Transformer_ID2361__for_TensorFlow",
        "train.py --data_url={net}/text/ --train_url={net}/out/ --train1={net}/text/train.de "
        "--train2={net}/text/train.en --eval1={net}/text/eval.de "
        "--eval2={net}/text/eval.en --vocab={net}/text/vocabulary --vocab_size=84 "
        "--batch_size=4 --d_model=16 --d_ff=32 --num_blocks=1 --num_heads=2",
        lambda net, random: translations(net / "text", random),
        mode="allow_fp32_to_fp16",
        steps=4,
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/nlp/seq2seq",
        "translate.py --data_dir={net}/text --from_train_data={net}/text/train.de --to_train_data={net}/text/train.en "
        "--train_dir={net}/out --size=16 --num_layers=1 --from_vocab_size=60 --to_vocab_size=60 --batch_size=4",
        lambda net, random: translations(net / "text", random),
        cwd="Seq2Seq_ID1474_for_TensorFlow",
        steps=4,
        loss=(2, 8),
        limit=600,
    ),
)
