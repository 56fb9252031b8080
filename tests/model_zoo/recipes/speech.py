"""Speech: keywords in recordings, spectrograms from text."""

import numpy as np
from data import waves, write
from recipe import Recipe

WORDS = "yes no up down left right on off stop go bed cat".split()  # noqa: SIM905


def read_aloud(folder, random, count=6):
    """Sentences, their spectrograms of 80 and of 1025 bands, and how their words are spoken."""
    for name, bands in (("mels", 80), ("mags", 1025), ("dones", 0)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            frames = random.random((300, bands)) if bands else np.zeros(300)
            np.save(str(folder / name / ("LJ%d.npy" % number)), frames.astype(np.float32 if bands else np.int32))
    write(folder / "metadata.csv", "".join("LJ%d|the cat sat|the cat sat\n" % number for number in range(count)))
    write(folder / "cmudict.dict.txt", "the DH AH0\ncat K AE1 T\nsat S AE1 T\n")


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
    Recipe(
        "TensorFlow/built-in/audio/Tacotron2-v1_ID0017_for_TensorFlow",
        "train.py --data_paths={net}/spoken --log_dir={net}/out --log_name=run --batch_size=2 --num_iterations=3 "
        "--precision_mode=allow_mix_precision --deltree=True",
        lambda net, random: read_aloud(net / "spoken", random),
        checkpoint="out/run/model.ckpt-*.index",
        limit=600,
    ),
)
