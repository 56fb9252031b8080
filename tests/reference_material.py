"""What tests/reference holds: tables as JSON, and training graphs with what they are fed."""

import json
import lzma
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "reference"


def table(name):
    """The JSON file of this name."""
    return json.loads((FOLDER / (name + ".json")).read_text(encoding="utf-8"))


def about(name):
    """dict of a training graph: its model, init op, loss, train op, and feeds as name -> [dtype, dimensions]."""
    return table("graphs/graphs")[name]


def training_graph(name):
    """The GraphDef of a training graph."""
    from tensorflow.compat.v1 import GraphDef

    return GraphDef.FromString(lzma.decompress((FOLDER / "graphs" / (name + ".pb.xz")).read_bytes()))


def feeds(name, batch=4, steps=6):
    """dict of feed -> array, always the same: sequences have `steps` elements, and batches that are open `batch`."""
    random, fed = np.random.RandomState(0), {}
    for feed, (dtype, *shape) in about(name)["feeds"].items():
        shape = [size if size is not None else batch if axis == 0 else steps for axis, size in enumerate(shape)]
        drawn = random.randn(*shape) if dtype == "float32" else random.randint(0, 2, size=shape)
        fed[feed] = drawn.astype(dtype)
        if "len" in feed:
            fed[feed] = np.full(shape, 100 if name.startswith("crnn") else steps, dtype)
    if name.startswith("crnn"):  # three labels a sample, as a sparse tensor
        fed["labels/indices:0"] = np.array([[i, j] for i in range(8) for j in range(3)], np.int64)
        fed["labels/values:0"] = random.randint(0, 60, 24).astype(np.int32)
        fed["labels/shape:0"] = np.array([8, 3], np.int64)
    return fed
