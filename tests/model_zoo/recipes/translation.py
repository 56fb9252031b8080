"""Translation of sentences, as many as come with the network."""

from data import write
from recipe import Recipe


def marked_words(folder, random, lines=40, words=40):
    """Sentences in two languages, and the words of each behind six marks."""
    for language in ("en", "de"):
        rows = [" ".join("%s%d" % (language, n) for n in random.integers(0, words, 6)) for _ in range(lines)]
        for part in ("train", "test"):
            write(folder / ("%s.%s" % (part, language)), "\n".join(rows) + "\n")
        known = ["<unk>", "<s>", "</s>", "<pad>", "<sos>", "<eos>", *("%s%d" % (language, n) for n in range(words))]
        write(folder / ("vocab." + language), "\n".join(known) + "\n")


RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/NMT_ID0512_for_TensorFlow",  # comes with sentences to test it with
        "nmt.py --attention=scaled_luong --src=vi --tgt=en --num_gpus=1 --vocab_prefix=testdata/iwslt15.vocab.100 "
        "--train_prefix=testdata/iwslt15.tst2013.100 --dev_prefix=testdata/iwslt15.tst2013.100 "
        "--test_prefix=testdata/iwslt15.tst2013.100 --out_dir={net}/out --num_train_steps=20 --steps_per_stats=2 "
        "--num_layers=2 --num_units=16 --batch_size=4 --metrics=bleu",
        cwd="nmt/nmt",
        env={"USE_NPU": 1},
        steps=4,
        limit=600,
    ),
    Recipe(
        "TensorFlow/built-in/nlp/GNMT_ID1819_for_TensorFlow",
        "nmt.py --mode=train --data_dir={net}/text --train_prefix=train --test_prefix=test --vocab_prefix=vocab "
        "--output_dir={net}/out --max_train_epochs=1 --debug_num_train_steps=4 --batch_size=4 --num_units=16 "
        "--num_layers=4 --share_vocab=False --src_max_len=10 --tgt_max_len=10",
        lambda net, random: marked_words(net / "text", random),
        limit=600,
    ),
    Recipe(
        "TensorFlow/contrib/nlp/bigru",
        "trainer.py --input {net}/text/train.en {net}/text/train.de --vocabulary {net}/text/vocab.en "
        "{net}/text/vocab.de --model rnnsearch --output {net}/out "
        "--parameters=train_steps=4,hidden_size=16,embedding_size=16,batch_size=4,save_checkpoint_steps=2",
        lambda net, random: marked_words(net / "text", random),
        cwd="bigru_ID0173_for_TensorFlow/thumt/bin",
        path=["bigru_ID0173_for_TensorFlow"],
        checkpoint="out/model.ckpt-*.index",
        limit=600,
    ),
)
