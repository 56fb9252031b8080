"""Text: classification, language models, tagging."""

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
)
