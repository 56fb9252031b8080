"""Text: classification, language models, tagging."""

import json

import numpy as np
from data import cnews, imdb_vectors, write
from recipe import Recipe

NLP = "TensorFlow/built-in/nlp/"


def conll(folder, random, sentences=40, dimensions=100):
    """Sentences with a tag a word in three parts, and word vectors as text."""
    words = ["word%d" % n for n in range(80)]
    for part in ("train", "testa", "testb"):
        rows = []
        for _ in range(sentences):
            chosen = random.integers(0, len(words), random.integers(4, 10))
            rows += ["%s %s" % (words[n], ("O", "I-PER", "I-LOC")[n % 3]) for n in chosen] + [""]
        write(folder / "coNLL" / "eng" / ("eng.%s.iob" % part), "\n".join(rows) + "\n")
    lines = ("%s %s" % (word, " ".join("%.3f" % value for value in random.normal(size=dimensions))) for word in words)
    write(folder / "glove.6B" / ("glove.6B.%dd.txt" % dimensions), "\n".join(lines) + "\n")


def same_people(path, random, lines=150):
    """Two spellings of a name a line."""
    letters = list("abcdefghijklmno")
    names = ["".join(random.choice(letters, random.integers(5, 12))) for _ in range(lines)]
    write(path, "".join("%s\t%s\n" % (name, name[1:] + name[0]) for name in names))


def little_gpt(net, random, width=32, layers=2, letters=257):
    """A language model whose tokens are bytes, with its weights, and a play."""
    import tensorflow.compat.v1 as tf

    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that stand for themselves
    signs = [chr(n) for n in kept] + [chr(256 + n) for n in range(256 - len(kept))]
    folder = net / "models" / "124M"
    sizes = {"n_vocab": letters, "n_ctx": 1024, "n_embd": width, "n_head": 2, "n_layer": layers}
    write(folder / "hparams.json", json.dumps(sizes))
    write(folder / "encoder.json", json.dumps({sign: n for n, sign in enumerate([*signs, "<|endoftext|>"])}))
    write(folder / "vocab.bpe", "#version: 0.2\n")
    write(net / "shakespeare.txt", "First: to be, or not to be?\nSecond: that is the question.\n" * 60)
    shapes = {"wpe": (1024, width), "wte": (letters, width)}
    for part in ("ln_f", *("h%d/%s" % (n, norm) for n in range(layers) for norm in ("ln_1", "ln_2"))):
        shapes.update({part + "/g": (width,), part + "/b": (width,)})
    kernels = (("attn/c_attn", 1, 3), ("attn/c_proj", 1, 1), ("mlp/c_fc", 1, 4), ("mlp/c_proj", 4, 1))
    for name, inputs, outputs in kernels:
        for layer in range(layers):
            start = "h%d/%s" % (layer, name)
            shapes.update({start + "/w": (1, inputs * width, outputs * width), start + "/b": (outputs * width,)})
    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape in shapes.items():
            value = random.normal(size=shape) * 0.02 + (name[-2:] == "/g")
            tf.get_variable("model/" + name, initializer=value.astype(np.float32), use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "model.ckpt"))


RECIPES = (
    Recipe(
        NLP + "word2vec_ID0134_for_TensorFlow",
        "word2vec_chinese.py --dataset_dir=cnews 100000",
        lambda net, random: cnews(net / "cnews", random, lines=200, more_words=50000),
        steps=20,
        loss=(50, 600),
        checkpoint="ckpt_npu/model.ckpt.index",
    ),
    Recipe(
        NLP + "Textcnn_ID0123_For_Tensorflow",
        "run_cnn.py --num_epochs=2 --data_path=cnews --save_dir=ckpt",
        lambda net, random: cnews(net / "cnews", random, lines=1024),
        checkpoint="ckpt/best_validation.index",
        limit=600,
    ),
    Recipe(
        NLP + "LSTM_ID0111_for_TensorFlow",
        "train.py --data_path=. --steps=20 --batch_size=8 --precision_mode=allow_mix_precision",
        lambda net, random: imdb_vectors(net, random),
    ),
    Recipe(
        NLP + "CNN-MC_ID0287_for_TensorFlow",
        "main-npu.py",
        mode="allow_mix_precision",
        steps=20,
    ),
    Recipe(
        "TensorFlow/contrib/nlp/SEQUENCE_TAGGING_ID2097_for_TensorFlow",
        "train.py --epochs=1",
        lambda net, random: conll(net / "data", random),
        mode="allow_fp32_to_fp16",
        prepare=("build_data.py",),
        checkpoint="results/model.weights/*.index",
        loss=(3, 60),
        limit=600,
    ),
    Recipe(
        NLP + "Siamese_ID0506_for_TensorFlow",
        "train.py --num_epochs=1 --training_files=person_match.train2 --hidden_units=64 --embedding_dim=304 "
        "--evaluate_every=4 --checkpoint_every=4",
        lambda net, random: same_people(net / "person_match.train2", random),
        checkpoint="runs/*/checkpoints/model-4.index",
        loss=(0.01, 1),
        limit=600,
    ),
    Recipe(
        NLP + "GPT-2_for_TensorFlow",
        "gpt_2_simple/train.py 2",
        little_gpt,
        mode="allow_fp32_to_fp16",
        path=["."],
        checkpoint="checkpoint/run1/model-2.index",
        limit=900,
    ),
)
