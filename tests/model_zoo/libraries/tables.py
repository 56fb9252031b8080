"""Libraries of recommendation, ranking, graphs and probability."""

from libraries.layers import SONNET
from recipe import Recipe

RECIPES = (
    Recipe("deepctr", "train.py", install="deepctr==0.8.2", checkpoint="deepfm.h5"),
    Recipe("tensorrec", "train.py", install="tensorrec==0.26.2", checkpoint="tensorrec/*"),
    Recipe(
        "gpflow",
        "train.py",
        install="gpflow==1.5.1 multipledispatch",
        lowers=False,  # it computes in float64, which no mode lowers
        checkpoint="gpr.gpflow",
    ),
    Recipe("tensorflow-ranking", "train.py", install="tensorflow-ranking==0.1.6", checkpoint="model/*-8.index"),
    Recipe(
        "graph_nets",
        "train.py",
        install="graph-nets==1.0.5 " + SONNET,
        checkpoint="model.ckpt.index",
    ),
    Recipe(
        "ampligraph",
        "train.py",
        install="ampligraph==1.4.0 rdflib==5.0.0",
        lowers=False,  # looked up, multiplied and summed: no product of matrices
        checkpoint="complex.pkl",
    ),
    Recipe("deepxde", "train.py", install="deepxde==0.9.0 SALib multiprocess", checkpoint="model-8.index"),
)
