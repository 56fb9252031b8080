"""Speech: keywords in recordings, spectrograms from text."""

from data import waves
from recipe import Recipe

WORDS = "yes no up down left right on off stop go bed cat".split()  # noqa: SIM905

RECIPES = (
    Recipe(
        "TensorFlow/built-in/nlp/DS-CNN_ID1769_for_TensorFlow",
        "train.py --model_architecture ds_cnn --model_size_info 2 16 10 4 2 2 16 3 3 1 1 --dct_coefficient_count 10 "
        "--window_size_ms 40 --window_stride_ms 20 --learning_rate 0.0005 --how_many_training_steps 4 --data_url= "
        "--data_dir={net}/words --batch_size 100 --summaries_dir={net}/logs --train_dir={net}/out",
        lambda net, random: (
            waves(net / "words", random, WORDS, 24),
            waves(net / "words", random, ["_background_noise_"], 2, seconds=3),
        ),
        steps=4,
        loss=(1.5, 6),
        limit=600,
    ),
)
