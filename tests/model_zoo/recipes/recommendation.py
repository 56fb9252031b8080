"""Recommendation: click rates from sparse features and from what users did before."""

import pickle

import numpy as np
from data import stand_in, tfrecords, write
from recipe import Recipe

BUILT_IN = "TensorFlow/built-in/recommendation/"
CONTRIB = "TensorFlow/contrib/recommendation/"
# the ids of thirty features that many lines have, and of nine that stand behind them
COMMON_AND_GENERAL = (np.repeat((0, 21340), (30, 9)), np.repeat((21340, 184962), (30, 9)))


def clicks(folder, random, records=6, lines=1000, inputs=39, features=(0, 200000)):
    """Clicks as TFRecords of `lines` lines each: a label, and id and value of each input.

    `features`: the first id and the one behind the last, numbers or arrays of one for each input.
    """
    for part in ("train_part_0", "test_part_0"):
        tfrecords(folder / part, [
            {
                "label": (random.random(lines) < 0.3).astype(np.float32),
                "feat_ids": random.integers(*features, (lines, inputs)),
                "feat_vals": np.ones(inputs * lines, np.float32),
            }
            for _ in range(records)
        ])  # fmt: skip


def reviews(folder, random, lines=600, users=50, items=200, categories=20):
    """What users bought, as DIEN's scripts read it: one line a candidate, the history in it separated by \\x02."""
    category = ["c%d" % n for n in random.integers(0, categories, items)]
    for name in ("local_train_splitByUser", "local_test_splitByUser"):
        rows = []
        for number in range(lines):
            history = random.integers(0, items, random.integers(4, 12))
            wanted = random.integers(0, items)
            rows.append([
                str(number % 2), "u%d" % random.integers(0, users), "m%d" % wanted, category[wanted],
                "\x02".join("m%d" % n for n in history), "\x02".join(category[n] for n in history),
            ])  # fmt: skip
        write(folder / name, "".join("\t".join(row) + "\n" for row in rows))
    write(folder / "item-info", "".join("m%d\t%s\n" % pair for pair in enumerate(category)))
    write(folder / "reviews-info", "".join("u%d\tm%d\t5.0\t%d\n" % (n % users, n, n) for n in range(items)))
    for name, prefix, count in (("uid", "u", users), ("mid", "m", items), ("cat", "c", categories)):
        (folder / (name + "_voc.pkl")).write_bytes(pickle.dumps({"%s%d" % (prefix, n): n for n in range(count)}))


def libfm(folder, random, name="ml-tag", lines=300, features=90):
    """Rows of a rating and three features that are one, in three parts."""
    for part in ("train", "validation", "test"):
        rows = random.integers(0, features // 3, (lines, 3)) + np.arange(3) * (features // 3)
        text = "".join("%d %s\n" % (random.choice((-1, 1)), " ".join("%d:1" % n for n in row)) for row in rows)
        write(folder / name / ("%s.%s.libfm" % (name, part)), text)


def electronics(path, random, users=60, items=80, categories=9):
    """Reviews (user, item, time), the items' categories and the counts, pickled one after another."""
    import pandas as pd

    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(user, item, n) for user in range(users) for n, item in enumerate(random.choice(items, 8, replace=False))]
    with open(str(path), "wb") as f:
        pickle.dump(pd.DataFrame(rows, columns=["reviewerID", "asin", "unixReviewTime"]), f)
        pickle.dump([int(n) for n in random.integers(0, categories, items)], f)
        pickle.dump((users, items, categories, len(rows)), f)


def movies(folder, random, lines=512, features=3600):
    """Ratings: ids and values of six single fields and of six genres, in three parts."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        for kind in ("other", "genre"):
            np.save(str(folder / ("%s_i_%s.npy" % (part, kind))), random.integers(0, features, (lines, 6)))
            np.save(str(folder / ("%s_x_%s.npy" % (part, kind))), np.ones((lines, 6), np.float32))
        np.save(str(folder / (part + "_y.npy")), random.integers(0, 2, lines))


def ratings(folder, random, lines=300, users=40, items=60):
    """User, item and rating a line, counted from 1, in three parts."""
    for part in ("train", "valid", "test"):
        rows = zip(random.integers(1, users, lines), random.integers(1, items, lines), random.integers(1, 6, lines))
        write(folder / ("u." + part), "".join("%d\t%d\t%d\n" % row for row in rows))


def movie_lens(net, random, users=60, items=40):
    """Stars of users for films, as MovieLens writes them, and what the script takes randomness away with."""
    stand_in("tfdeterminism", net)
    pairs = [(user, item) for user in range(1, users + 1) for item in random.choice(items, 12, replace=False) + 1]
    rows = ["%d::%d::%d::978300760" % (*pair, random.integers(1, 6)) for pair in pairs]
    write(net / "ml-1m" / "ratings.dat", "\n".join(rows) + "\n")


def restaurants(folder, random, users=40, entities=120, relations=5):
    """Who likes which of the first entities, and what is known of all: head, relation, tail a line."""
    rated = [(user, item, int(random.integers(2))) for user in range(users) for item in range(user % 3, 60, 3)]
    write(folder / "ratings_final.txt", "".join("%d\t%d\t%d\n" % row for row in rated))
    known = [(head, head % relations, int(random.integers(entities))) for head in range(entities) for _ in range(3)]
    write(folder / "kg_final.txt", "".join("%d\t%d\t%d\n" % row for row in known))


RECIPES = (
    Recipe(
        BUILT_IN + "DCN_ID1986_for_TensorFlow",
        "dcn_main_record_multigpu_fp16.py 1000 tag 1e-4 1 {net}/records/",
        lambda net, random: clicks(net / "records", random),
        steps=5,
        loss=(0.5, 2),
        limit=600,
    ),
    Recipe(
        BUILT_IN + "deepFM_unkownshape_ID0091_for_TensorFlow",
        "2unique_deepfm_main_record_uid_fp32.py --data_dir={net}/records --max_epochs=1 --batch_size=1000 "
        "--max_steps=4 --display_every=1",
        lambda net, random: clicks(net / "records", random, features=COMMON_AND_GENERAL),
        steps=4,
        loss=(0.5, 2),
        limit=600,
    ),
    Recipe(
        BUILT_IN + "DIEN_ID3065_for_TensorFlow",
        "script/train.py train DIEN 3 train",
        reviews,
        steps=4,
        loss=(1, 5),
        limit=600,
    ),
    Recipe(
        CONTRIB + "afm",
        "AFM_NPU.py --pretrain=-1 --epoch=2 --batch_size=64 --data_url={net}/data/ --train_url={net}/out/",
        lambda net, random: libfm(net / "data", random),
        cwd="afm_tf_hw49819254/code",
        checkpoint="**/*.index",
    ),
    Recipe(
        CONTRIB + "din",
        "npu_train.py --max_steps=10 --save_checkpoint_steps=5 --batch_size=32",
        lambda net, random: electronics(net / "din_tf_allenyzx" / "raw_data" / "remap.pkl", random),
        cwd="din_tf_allenyzx",
        checkpoint="din_tf_allenyzx/checkpoint/model.ckpt-*.index",
        loss=(0.4, 1.5),
    ),
    Recipe(
        CONTRIB + "autoint",
        "train.py --epoch=2 --batch_size=128 --data_url={net}/data --save_path={net}/models/",
        lambda net, random: movies(net / "data", random),
        cwd="AutoInt_ID0189_for_TensorFlow",
        loss=(0.3, 2),
    ),
    Recipe(
        CONTRIB + "nnmf",
        "scripts/main.py --model=NNMF --mode=train --max-epochs=2 --batch=100 --users=40 --movies=60 "
        "--train={net}/u.train --valid={net}/u.valid --test={net}/u.test",
        ratings,
        cwd="NNMF_ID0300_for_TensorFlow",
        path=["NNMF_ID0300_for_TensorFlow"],
        checkpoint="**/*.ckpt.index",
    ),
    Recipe(
        "TensorFlow/built-in/nlp/kernetNet_ID0305_for_Tensorflow",  # L-BFGS: SciPy asks for losses and gradients
        "kernelNet_ml1m.py",
        movie_lens,
        steps=30,
        limit=300,
    ),
    Recipe(
        "TensorFlow/built-in/recommendation/KGNN_LS_ID0304_for_Tensorflow",
        "main.py --data_path={net}/eat --save_dir={net}/out --batch_size=64 --n_epochs=2",
        lambda net, random: restaurants(net / "eat", random),
        cwd="src",
        loss=(0, 200),
    ),
)
