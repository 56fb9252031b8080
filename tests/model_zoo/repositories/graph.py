"""Graph networks: nodes of a graph are classified, edges predicted."""

from recipe import Recipe
from recipes.graph import cora_planetoid

RECIPES = (
    Recipe(
        "tkipf/gcn",
        "train.py --epochs=8",
        lambda net, random: cora_planetoid(net / "gcn" / "data", random),
        cwd="gcn",
        path=["."],
        commit="39a4089fe7",
        apart=0.3,  # dropout
        loss=(1.5, 2.5),
    ),
    Recipe(
        "tkipf/gae",
        "train.py --epochs=8",
        lambda net, random: cora_planetoid(net / "gae" / "data", random),
        cwd="gae",
        path=["."],
        commit="0ebbe9b9a8",
        loss=(0.4, 6),
    ),
    Recipe(
        "PetarV-/GAT",
        "execute_cora.py",
        lambda net, random: cora_planetoid(net / "data", random),
        commit="5af87e7fce",
        steps=4,
        loss=(1.5, 2.5),
        apart=0.3,  # dropout
    ),
)
