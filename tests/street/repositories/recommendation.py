"""Recommendation: what users click or buy, from what they did before."""

import numpy as np
from data import folders, write
from recipe import Recipe

INTEGERS, FLOATS = ("ps_ind_01", "ps_ind_03"), ("ps_reg_01", "ps_reg_03", "ps_car_12", "ps_car_13")


def drivers(folder, random, lines=300):
    """Car owners: their number, whether they filed a claim, and some features of both kinds, in two parts."""
    for part in ("train", "test"):
        target = ["target"] if part == "train" else []
        rows = [",".join(["id", *target, *INTEGERS, *FLOATS])]
        for number in range(lines):
            claim = [str(number % 2)] if target else []
            integers = [str(n) for n in random.integers(0, 6, len(INTEGERS))]
            rows.append(",".join([str(number), *claim, *integers, *("%.3f" % x for x in random.random(len(FLOATS)))]))
        write(folder / (part + ".csv"), "\n".join(rows) + "\n")


def purchases(folder, random, users=60, items=100):
    """What each user bought, in two parts: the user's number and those of the items."""
    for part, count in (("train", 12), ("test", 3)):
        rows = [[user, *random.choice(items, count, replace=False)] for user in range(users)]
        rows[0][1:3] = [0, items - 1]
        write(folder / (part + ".txt"), "\n".join(" ".join(map(str, row)) for row in rows) + "\n")


def libsvm(folder, random, lines=200, fields=6, features=60):
    """Rows of a label, and of number and value for a feature of each field, in three parts."""
    for part in ("tr", "va", "te"):
        rows = random.integers(0, features // fields, (lines, fields)) + np.arange(fields) * (features // fields)
        text = ("%d %s" % (n % 2, " ".join("%d:1" % feature for feature in row)) for n, row in enumerate(rows))
        write(folder / (part + ".libsvm"), "\n".join(text) + "\n")


DEEPFM = (
    "DeepFM.py --feature_size=60 --field_size=6 --embedding_size=8 --batch_size=32 --num_epochs=1 --deep_layers=16,8 "
    "--dropout=0.9,0.9 --data_dir=data --model_dir=model --dt_dir=day"
)

RECIPES = (
    Recipe(
        "lambdaji/tf_repos",
        DEEPFM + " --task_type=train",
        lambda net, random: libsvm(net / "deep_ctr" / "Model_pipeline" / "data", random),
        cwd="deep_ctr/Model_pipeline",
        commit="b531ff12cd",
        checkpoint="deep_ctr/Model_pipeline/modelday/model.ckpt-*.index",
        again=DEEPFM + " --task_type=eval",
        apart=0.3,  # dropout
    ),
    Recipe(
        "ChenglongChen/tensorflow-DeepFM",
        "main.py",
        lambda net, random: (drivers(net / "example" / "data", random), folders(net, "example/output", "example/fig")),
        cwd="example",
        commit="a43dd5ff1f",
        steps=12,
        loss=(0.4, 2),
        apart=0.3,  # dropout
    ),
    Recipe(
        "xiangwang1223/neural_graph_collaborative_filtering",
        "NGCF.py --dataset=gowalla --epoch=2 --embed_size=16 --layer_size=[16] --batch_size=256 --verbose=1 "
        "--save_flag=1 --weights_path={net}/out/",
        lambda net, random: purchases(net / "Data" / "gowalla", random),
        cwd="NGCF",
        commit="a718a4f2df",
        limit=600,
        apart=0.3,  # dropout
    ),
    Recipe(
        "shenweichen/DeepCTR",
        "run_estimator_pandas_classification.py",
        cwd="examples",
        path=["."],
        commit="1b5fe40e15",
        loss=(0.4, 2),
    ),
)
