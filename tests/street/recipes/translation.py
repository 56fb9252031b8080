"""Translation of sentences."""

from data import write
from recipe import Recipe


def sentences(folder, random, count=64, words=150):
    """Sentences and their translations, of a length for each bucket."""
    for language in ("en", "fr"):
        lines = (" ".join("%s%d" % (language, n) for n in random.integers(0, words, 2 + 8 * (row % 5)))
                 for row in range(count))  # fmt: skip
        write(folder / ("train." + language), "\n".join(lines) + "\n")


def pieces(folder, random, count=40, words=60):
    """Sentences in word pieces for training and evaluation, and the list of pieces."""
    known = ["word%d" % n for n in range(words)]
    write(folder / "bpe.vocab", "\n".join(["<pad>", "<unk>", "<s>", "</s>", *known]) + "\n")
    for name in ("train.de", "train.en", "eval.de", "eval.en"):
        lines = (" ".join(random.choice(known, random.integers(3, 20))) for _ in range(count))
        write(folder / name, "\n".join(lines) + "\n")


RECIPES = (
    Recipe(
        "TensorFlow/contrib/nlp/seq2seq",
        "translate.py --data_dir={net}/text --from_train_data={net}/text/train.en --to_train_data={net}/text/train.fr "
        "--size=32 --num_layers=1 --from_vocab_size=200 --to_vocab_size=600 --batch_size=8 --max_train_data_size=64 "
        "--epoch=0.5 --steps_per_checkpoint=4",
        lambda net, random: sentences(net / "text", random),
        cwd="Seq2Seq_ID1474_for_TensorFlow",
        checkpoint="Seq2Seq_ID1474_for_TensorFlow/model/translate.ckpt-*.index",
        loss=(2, 12),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/nlp/Transformer_ID2361__for_TensorFlow",
        "train.py --data_url={net}/text --train_url={net}/out/ --train1={net}/text/train.de "
        "--train2={net}/text/train.en --eval1={net}/text/eval.de --eval2={net}/text/eval.en "
        "--vocab={net}/text/bpe.vocab --vocab_size=64 --batch_size=4 --d_model=32 --d_ff=64 "
        "--num_blocks=1 --num_heads=2",
        lambda net, random: pieces(net / "text", random),
        mode="allow_fp32_to_fp16",
        steps=4,
        loss=(2, 12),
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/nlp/NMT_ID0512_for_TensorFlow",  # comes with sentences to test it with
        "nmt.py --attention=scaled_luong --src=vi --tgt=en --num_gpus=1 --vocab_prefix=testdata/iwslt15.vocab.100 "
        "--train_prefix=testdata/iwslt15.tst2013.100 --dev_prefix=testdata/iwslt15.tst2013.100 "
        "--test_prefix=testdata/iwslt15.tst2013.100 --out_dir={net}/out --num_train_steps=20 --steps_per_stats=2 "
        "--num_layers=2 --num_units=16 --batch_size=4 --metrics=bleu",
        cwd="nmt/nmt",
        steps=4,
        limit=600,
    ),
)
