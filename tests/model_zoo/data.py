"""Made-up data in the formats that public scripts read: small, seeded, written in seconds.

Each function takes the folder to write into and a numpy Generator first. What two networks need is here; what only one
needs stands beside its recipe.
"""

import gzip
import json
import shutil
import struct

import numpy as np
from recipe import HERE

CNEWS_CATEGORIES = tuple("体育 财经 房产 家居 教育 科技 时尚 时政 游戏 娱乐".split())  # noqa: SIM905
_WORDS = "城市 记者 体育 教练 足球 赛季 奥运会 丑闻 足协 公司 市场 学生 大学 手机 电影 音乐 政府 经济 比赛 冠军"
CNEWS_WORDS = tuple(_WORDS.split())
BERT_WORDS = (*("w%d" % n for n in range(94)), ".")


def write(path, text):
    """Writes a text file, its folders too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def folders(net, *names):
    """Makes folders that a script expects."""
    for name in names:
        (net / name).mkdir(parents=True, exist_ok=True)


def stand_in(package, folder):
    """Puts our stand-in for a package that cannot be had beside a script."""
    shutil.copytree(str(HERE / "stand_ins" / package), str(folder / package))


def cnews(folder, random, lines, more_words=0):
    """Chinese news, a category and a text a line, and the vocabulary of their characters.

    `more_words`: further words, each of which occurs once, in the validation part.
    """

    def text():
        return "".join(random.choice(CNEWS_WORDS, 60))

    for part, count in (("train", lines), ("val", lines // 4), ("test", lines // 4)):
        rows = ["%s\t%s" % (random.choice(CNEWS_CATEGORIES), text()) for _ in range(count)]
        rows[0] = CNEWS_CATEGORIES[0] + "\t" + "。".join(CNEWS_WORDS)  # every word at least once
        rows += ["%s\t%s" % (CNEWS_CATEGORIES[0], "。".join("w%d" % n for n in range(more_words)))] * (part == "val")
        write(folder / ("cnews.%s.txt" % part), "\n".join(rows) + "\n")
    characters = sorted(set("".join(CNEWS_WORDS)))
    write(folder / "cnews.vocab.txt", "\n".join(["<PAD>", *characters]) + "\n")


def tiny_bert(net):
    """The configuration of a BERT of two layers of 32, and its vocabulary of 100: BERT_WORDS after five signs."""
    size = {
        "vocab_size": 5 + len(BERT_WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 64, "type_vocab_size": 2, "initializer_range": 0.02, "embedding_size": 16,
        "ln_type": "postln",
    }  # fmt: skip
    write(net / "tiny.json", json.dumps(size))
    write(net / "vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *BERT_WORDS]) + "\n")


def imdb_vectors(folder, random, words=400):
    """Word vectors and the reviews' word ids, as the sentiment LSTMs read them."""
    np.save(str(folder / "wordVectors.npy"), random.normal(size=(words, 36)).astype(np.float32))
    np.save(str(folder / "idsMatrix.npy"), random.integers(0, words, (25000, 250)).astype(np.int32))


def images(folder, random, count, size, ending="jpg", names="%d"):
    """Images of smooth noise, `size` (height, width), named by number."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    height, width = size
    for number in range(count):
        small = random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3)).astype(np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
        image.save(str(folder / ("%s.%s" % (names % number, ending))))


def waves(folder, random, words, count, seconds=1.0, rate=16000):
    """Recorded words: a folder a word, `each` wave files in it, 16 bits, one channel."""
    import wave

    for pitch, word in enumerate(words):
        (folder / word).mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            time = np.arange(int(rate * seconds)) / rate
            sound = np.sin(2 * np.pi * (200 + 60 * pitch) * time) + 0.3 * random.normal(size=time.size)
            with wave.open(str(folder / word / ("%08x_nohash_0.wav" % random.integers(2**32))), "wb") as f:
                f.setnchannels(1)
                f.setsampwidth(2)
                f.setframerate(rate)
                f.writeframes((sound * 8000).astype(np.int16).tobytes())


def mnist(folder, random, train=6000, test=1000, compressed=True):
    """Handwritten digits in their four files, with made-up images."""
    folder.mkdir(parents=True, exist_ok=True)
    opened, ending = (gzip.open, ".gz") if compressed else (open, "")
    for part, count in (("train", train), ("t10k", test)):
        labels = random.integers(0, 10, count).astype(np.uint8)
        pixels = (random.integers(0, 128, (count, 28, 28)) + 12 * labels[:, None, None]).astype(np.uint8)
        with opened(str(folder / (part + "-images-idx3-ubyte" + ending)), "wb") as f:
            f.write(struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes())
        with opened(str(folder / (part + "-labels-idx1-ubyte" + ending)), "wb") as f:
            f.write(struct.pack(">II", 2049, count) + labels.tobytes())


def tfrecords(path, examples):
    """Writes tf.train.Examples, dicts of name -> str, bytes, list of bytes, or array of ints or floats."""
    import tensorflow.compat.v1 as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            features = tf.train.Features(feature={name: _feature(tf, value) for name, value in example.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())


def _feature(tf, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        value = [value]
    if isinstance(value, list) and isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    value = np.asarray(value).reshape(-1)
    if value.dtype.kind in "iub":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))
