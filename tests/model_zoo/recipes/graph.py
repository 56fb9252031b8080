"""Graph networks: nodes of a graph are classified, edges predicted."""

import pickle

import numpy as np
from data import folders
from recipe import Recipe

GNN = "TensorFlow/built-in/gnn/"


def cora_npz(folder, random, nodes=700, words=60, classes=7):
    """The citation graph as one .npz: word counts and neighbours as sparse rows, a class each node."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    words = sp.csr_matrix(random.random((nodes, words)) < 0.2, dtype=np.float32)
    edges = sp.csr_matrix(random.random((nodes, nodes)) < 0.01, dtype=np.float32)
    arrays = {"labels": np.arange(nodes) % classes}
    for name, matrix in (("attr", words), ("adj", edges)):
        arrays[name + "_data"], arrays[name + "_indices"] = matrix.data, matrix.indices
        arrays[name + "_indptr"], arrays[name + "_shape"] = matrix.indptr, matrix.shape
    np.savez(str(folder / "cora.npz"), **arrays)


def cora_planetoid(folder, random, nodes=700, words=40, labelled=60):
    """The citation graph in Planetoid's pickled parts; with one neighbour a node few drawn edges are true."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    words = sp.csr_matrix(random.random((nodes, words)) < 0.2, dtype=np.float32)
    train = nodes - 50
    classes = np.eye(7, dtype=np.int32)[np.arange(nodes) % 7]
    parts = {
        "x": words[:labelled], "allx": words[:train], "tx": words[train:],
        "y": classes[:labelled], "ally": classes[:train], "ty": classes[train:],
        "graph": {node: [node ^ 1] for node in range(nodes)},
    }  # fmt: skip
    for name, part in parts.items():
        (folder / ("ind.cora." + name)).write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, random.permutation(np.arange(train, nodes)))) + "\n")


RECIPES = (
    Recipe(
        GNN + "GCN_ID2127_for_TensorFlow",
        "gcn/train.py --device=npu --num_epochs=10 --valid_size=200 --test_size=200",
        lambda net, random: (cora_npz(net / "data", random), folders(net, "results")),
        loss=(1.8, 2.2),
        checkpoint="results/gcn_checkpoint.index",
    ),
    Recipe(
        GNN + "VGAE_ID2868_for_TensorFlow",
        "gae/train.py --device=npu --epochs=10",
        lambda net, random: cora_planetoid(net / "data", random),
        loss=(0.4, 6),  # links drawn without a seed
        checkpoint="saved/vgae_ckpt_cora.index",
    ),
    Recipe(
        "TensorFlow/contrib/graph/gat",
        "execute_cora.py --data_url={net}/data --train_url={net}/out/ --nb_epochs=4",
        lambda net, random: cora_planetoid(net / "data", random),
        mode="allow_fp32_to_fp16",
        cwd="gat_ID0191_for_TensorFlow",
        loss=(1.5, 2.5),
        checkpoint="out/mod_cora.ckpt.index",
    ),
)
