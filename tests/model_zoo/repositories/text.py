"""Text: classified, tagged, translated, continued."""

import json
import pickle

import numpy as np
from data import cnews, write
from recipe import Recipe
from recipes.documents import translations
from recipes.text import conll

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def prose(path, random, words=4000, known=60):
    """A text of made-up words, with a full stop here and there and a line of twenty words."""
    vocabulary = ["".join(random.choice(list(LETTERS), random.integers(2, 7))) for _ in range(known)]
    drawn = [str(word) + ("." if random.random() < 0.1 else "") for word in random.choice(vocabulary, words)]
    write(path, "\n".join(" ".join(drawn[at : at + 20]) for at in range(0, words, 20)) + "\n")


def tagged(net, random):
    """Sentences with a tag a word in the one file that the script reads, and word vectors."""
    conll(net / "data", random, dimensions=300)
    own = net / "data" / "test.txt"
    own.write_text((net / "data" / "coNLL" / "eng" / "eng.train.iob").read_text())


def pieces(net, random):
    """Translations under the names of the script's segmented data, with the marks of a sentence in its vocabulary."""
    folder = net / "iwslt2016" / "segmented"
    translations(folder, random)
    for language in ("de", "en"):
        (folder / ("train." + language)).rename(folder / ("train.%s.bpe" % language))
        (folder / ("eval." + language)).rename(folder / ("eval.%s.bpe" % language))
    write(net / "iwslt2016" / "prepro" / "eval.en", (folder / "eval.en.bpe").read_text())
    write(folder / "bpe.vocab", (folder / "vocabulary").read_text())
    write(net / "multi-bleu.perl", "print 'BLEU = 1.00';\n")


def small_gpt(net, random):
    """A GPT-2 of two layers of 32, which knows single bytes, a checkpoint of it, and a text."""
    import tensorflow.compat.v1 as tf

    size = {"n_vocab": 257, "n_ctx": 1024, "n_embd": 32, "n_head": 2, "n_layer": 2}
    write(net / "models" / "117M" / "hparams.json", json.dumps(size))
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    signs = [chr(n) for n in printed] + [chr(256 + n) for n in range(256 - len(printed))]
    write(net / "models" / "117M" / "encoder.json", json.dumps({s: n for n, s in enumerate([*signs, "<|endoftext|>"])}))
    write(net / "models" / "117M" / "vocab.bpe", "#version: 0.2\n\n")
    prose(net / "text.txt", random)
    shapes = {"model/wpe": [1024, 32], "model/wte": [257, 32], "model/ln_f/g": [32], "model/ln_f/b": [32]}
    for layer in ("model/h0/", "model/h1/"):
        for name, width in (("attn/c_attn", 96), ("attn/c_proj", 32), ("mlp/c_fc", 128)):
            shapes.update({layer + name + "/w": [1, 32, width], layer + name + "/b": [width]})
        shapes.update({layer + "mlp/c_proj/w": [1, 128, 32], layer + "mlp/c_proj/b": [32]})
        shapes.update({layer + norm + part: [32] for norm in ("ln_1/", "ln_2/") for part in "gb"})
    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape in shapes.items():
            tf.get_variable(name, initializer=(random.normal(size=shape) * 0.02).astype("float32"), use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(net / "models" / "117M" / "model.ckpt"))


def zhihu(folder, random, words=50, labels=8):
    """Questions as numbers of words and labels as ones, in three parts of an HDF5 file, and both vocabularies."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(str(folder / "data.h5"), "w") as f:
        for names, count in (("train_X train_Y", 100), ("vaild_X valid_Y", 40), ("test_X test_Y", 40)):
            inputs, wanted = names.split()
            f[inputs] = random.integers(0, words, (count, 20))
            f[wanted] = (random.random((count, labels)) < 0.3).astype(np.int32)
    known = [{"w%d" % n: n for n in range(words)}, {"l%d" % n: n for n in range(labels)}]
    (folder / "vocab_label.pik").write_bytes(pickle.dumps(known))


def crimes(net, random, lines=150):
    """Descriptions with a category each as a zipped table, and a small network's configuration."""
    import zipfile

    words = ["w%d" % n for n in range(40)]
    rows = ["%s,%s" % (("theft", "fraud", "fire")[n % 3], " ".join(random.choice(words, 8))) for n in range(lines)]
    with zipfile.ZipFile(str(net / "made_up.csv.zip"), "w") as f:
        f.writestr("made_up.csv", "Category,Descript\n" + "\n".join(rows) + "\n")
    size = {
        "batch_size": 16, "dropout_keep_prob": 0.5, "embedding_dim": 300, "evaluate_every": 4, "filter_sizes": "3,4",
        "hidden_unit": 16, "l2_reg_lambda": 0.0, "max_pool_size": 4, "non_static": False, "num_epochs": 1,
        "num_filters": 8,
    }  # fmt: skip
    write(net / "small.json", json.dumps(size))


def chinese_names(net, random):
    """Sentences with a tag a character in two parts, and the numbers of the characters."""
    words = [chr(0x4E00 + n) for n in range(60)]
    for part, count in (("train_data", 32), ("test_data", 8)):
        rows = []
        for _ in range(count):
            rows += ["%s\t%s" % (word, random.choice(("O", "B-PER", "I-PER"))) for word in random.choice(words, 8)]
            rows.append("")
        write(net / "data_path" / part, "\n".join(rows) + "\n")
    known = {word: n for n, word in enumerate(["<PAD>", *words, "<UNK>"])}
    (net / "data_path" / "word2id.pkl").write_bytes(pickle.dumps(known))


RECIPES = (
    Recipe(
        "gaussic/text-classification-cnn-rnn",
        "run_cnn.py train",
        lambda net, random: cnews(net / "data" / "cnews", random, lines=200),
        commit="90dd55ccca",
        checkpoint="checkpoints/textcnn/best_validation.index",
        again="run_cnn.py test",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "Determined22/zh-NER-TF",
        "main.py --mode=train --epoch=1 --batch_size=8 --hidden_dim=16 --embedding_dim=16",
        chinese_names,
        commit="e4a8732de8",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "brightmart/text_classification",
        "p7_TextCNN_train.py --cache_file_h5py=zhihu/data.h5 --cache_file_pickle=zhihu/vocab_label.pik --batch_size=16 "
        "--embed_size=16 --num_filters=8 --num_epochs=2",
        lambda net, random: zhihu(net / "a02_TextCNN" / "zhihu", random),
        cwd="a02_TextCNN",
        commit="091ff99108",
        checkpoint="a02_TextCNN/text_cnn_title_desc_checkpoint/*.index",
        again="p7_TextCNN_train.py --cache_file_h5py=zhihu/data.h5 --cache_file_pickle=zhihu/vocab_label.pik "
        "--batch_size=16 --embed_size=16 --num_filters=8 --num_epochs=2",
        apart=0.3,  # dropout
    ),
    Recipe(
        "jiegzhan/multi-class-text-classification-cnn-rnn",
        "train.py made_up.csv.zip small.json",
        crimes,
        commit="5db803b7c1",
        checkpoint="**/best_model.ckpt.index",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "guillaumegenthial/sequence_tagging",
        "train.py",
        tagged,
        commit="5cb9890e7c",
        prepare=["build_data.py"],
        checkpoint="results/test/model.weights/*.index",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "hunkim/word-rnn-tensorflow",
        "train.py --data_dir=prose --rnn_size=32 --batch_size=8 --seq_length=10 --num_epochs=1 --save_every=20",
        lambda net, random: prose(net / "prose" / "input.txt", random, 1600),
        commit="5df11c5578",
        checkpoint="save/*.index",
        again="train.py --data_dir=prose --rnn_size=32 --batch_size=8 --seq_length=10 --num_epochs=2 "
        "--save_every=20 --init_from=save",
    ),
    Recipe(
        "Kyubyong/transformer",
        "train.py --d_model=32 --d_ff=64 --num_blocks=1 --num_heads=2 --batch_size=8 --num_epochs=2 --maxlen1=20 "
        "--maxlen2=20 --warmup_steps=10 --vocab_size=84",
        pieces,
        commit="fb023bb097",
        checkpoint="log/1/*.index",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "nshepperd/gpt-2",
        "train.py --dataset=text.txt --sample_every=4 --sample_length=8 --save_every=4 --batch_size=2 "
        "--learning_rate=1e-3",
        small_gpt,
        commit="b7cda3f48d",
        path=["src"],
        steps=9,
        loss=(4, 7),
        checkpoint="checkpoint/run1/model-*.index",
        again="src/generate_unconditional_samples.py --model_name=117M --nsamples=1 --length=4",
    ),
)
