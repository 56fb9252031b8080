"""Translation of sentences."""

from data import write
from recipe import Recipe


def sentences(folder, random, count=64, words=150):
    """Short sentences and their translations, a line each."""
    for language in ("en", "fr"):
        lines = (" ".join("%s%d" % (language, n) for n in random.integers(0, words, 2 + row % 7))
                 for row in range(count))  # fmt: skip
        write(folder / ("train." + language), "\n".join(lines) + "\n")


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
)
