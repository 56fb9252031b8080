"""Translation of sentences, as many as come with the network."""

from recipe import Recipe

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
)
