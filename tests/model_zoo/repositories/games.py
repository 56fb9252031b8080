"""Games that are played in a simulation."""

import numpy as np
from data import stand_in, write
from recipe import Recipe

BOARD, PLANES = 9, 17  # of the small board, and what a network is told of its last eight positions


def positions(net, random, count=80):
    """Positions of a small board with the move that was searched and who won, and no cloud to fetch them from."""
    import tensorflow.compat.v1 as tf

    for name in ("row_filters", "column_family"):
        write(net / "google" / "cloud" / "bigtable" / (name + ".py"), "")
    write(net / "google" / "cloud" / "bigtable" / "__init__.py", "")
    with tf.python_io.TFRecordWriter(str(net / "games.zz"), options=tf.io.TFRecordOptions("ZLIB")) as records:
        for _ in range(count):
            x = (random.random((BOARD, BOARD, PLANES)) < 0.3).astype(np.uint8)
            pi = random.dirichlet(np.ones(BOARD * BOARD + 1)).astype(np.float32)
            outcome = tf.train.Feature(float_list=tf.train.FloatList(value=[random.choice([-1.0, 1.0])]))
            told = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))
                    for name, value in (("x", x), ("pi", pi))}  # fmt: skip
            features = tf.train.Features(feature={**told, "outcome": outcome})
            records.write(tf.train.Example(features=features).SerializeToString())


RECIPES = (
    Recipe(
        "openai/baselines",
        "-m baselines.deepq.experiments.train_cartpole",
        lambda net, random: stand_in("gym", net),
        commit="ea25b9e8b2",
        steps=40,
        limit=600,
    ),
    Recipe(
        "tensorflow/minigo",  # its host call writes summaries in a tf.cond
        "train.py games.zz --work_dir={net}/out --train_batch_size=8 --trunk_layers=2 --conv_width=8 --summary_steps=4",
        positions,
        commit="6d89c202cd",
        env={"BOARD_SIZE": BOARD},
        checkpoint="out/model.ckpt-10.index",
        loss=(3, 9),
        limit=600,
    ),
)
