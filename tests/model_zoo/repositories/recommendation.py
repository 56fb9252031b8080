"""Recommendation: what users click or buy, from what they did before."""

from data import folders, stand_in, write
from recipe import Recipe

INTEGERS, FLOATS = ("ps_ind_01", "ps_ind_03"), ("ps_reg_01", "ps_reg_03", "ps_car_12", "ps_car_13")


def drivers(folder, random, lines=3300):
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


RECIPES = (
    Recipe(
        "ChenglongChen/tensorflow-DeepFM",
        "main.py",
        lambda net, random: (
            drivers(net / "example" / "data", random),
            folders(net, "example/output", "example/fig"),
            stand_in("yellowfin", net),
        ),
        path=["."],
        cwd="example",
        commit="a43dd5ff1f",
        steps=12,
        loss=(0.4, 2),
        apart=0.3,  # dropout
    ),
    Recipe(
        "xiangwang1223/neural_graph_collaborative_filtering",
        "NGCF.py --dataset=gowalla --epoch=10 --embed_size=16 --layer_size=[16] --batch_size=256 --verbose=1 "
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
        limit=600,
    ),
)
