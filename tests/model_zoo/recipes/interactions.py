"""Recommendation from what users and items have to do with each other."""

import numpy as np
from data import folders
from recipe import Recipe

BUILT_IN = "TensorFlow/built-in/recommendation/"


def douban(folder, random, users=40, items=60):
    """Ratings as a matrix, which of them are to train and to test with, and users who know each other."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    rated = random.random((users, items)) < 0.3
    ratings = np.where(rated, random.integers(1, 6, (users, items)), 0)
    test = rated & (random.random((users, items)) < 0.2)
    friends = random.random((users, users)) < 0.1
    arrays = {"M": ratings, "Otraining": rated & ~test, "Otest": test, "W_users": friends}
    with h5py.File(str(folder / "training_test_dataset.mat"), "w") as f:
        for name, array in arrays.items():
            f[name] = array.T.astype(np.float64)  # MATLAB writes column by column


RECIPES = (
    Recipe(
        BUILT_IN + "GC-MC_ID0307_for_TensorFlow",
        "train.py -d douban --accum stack -do 0.7 -nleft -nb 2 -e 4 --features --feat_hidden 64",
        lambda net, random: (douban(net / "gcmc" / "data" / "douban", random), folders(net / "gcmc", "ckpt")),
        cwd="gcmc",
        path=["."],
        checkpoint="gcmc/ckpt/*.index",
        loss=(1, 3),
    ),
    Recipe(
        BUILT_IN + "DIN_ID0190_for_TensorFlow",
        "run_din.py",
        mode="allow_fp32_to_fp16",
        cwd="examples",
        path=["."],
        loss=(0.3, 2),
    ),
    Recipe(
        BUILT_IN + "DeepCTR_Series_for_TensorFlow",
        "run_classification_criteo.py --precision_mode=allow_mix_precision",
        cwd="examples",
        loss=(0.3, 2),
    ),
)
