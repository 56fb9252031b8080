"""compile_step on a ResNet with small images, step by step the session's results, in float32 and mixed precision.

Batch normalizations, each behind a ReLU, make training chaotic: a relative change of the images by one last bit moves
the update of a step by some percent in ResNet-50, because an activation that is zero but for a rounding lets its
gradient pass or not. So every step starts from the session's state (through a checkpoint), and the measure of how far
the update may be from the session's is how far it moves when the images are changed as much as sums are rounded.
"""

import os
import pathlib
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from test_compiled_graphs import Real

import npu_shim

pytestmark = [
    pytest.mark.slow,
    *sessions.NEEDS_ENGINE,
]
NIGHTLY = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
STEPS = 20 if NIGHTLY else 4
# bottlenecks by stage: every kind of block is there in six of the sixteen, and XLA compiles them in a third of the time
BLOCKS = (3, 4, 6, 3) if NIGHTLY else (2, 2, 1, 1)
CHANGES = 3  # of the images, of which the one that moves an update most counts: some meet no rounding of a ReLU
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
IMAGE = 64
# sums of some thousand products lose some tens of last bits; the kernels of a session on CPU round every float16 result
SUMS = {"float32": 64 * 2**-23, "float16": 2 * 2**-11}
LOSSES = {"float32": 1000 * 2**-23, "float16": 16 * 2**-11}


def thin():
    """(graph, fetches, feeds) of the benchmark's ResNet with an eighth of the channels, at 64 by 64 pixels."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import bench_models
    finally:
        sys.path.remove(str(SCRIPTS))
    built = bench_models.build("resnet50", {"batch": 16, "image": IMAGE, "width": 8, "classes": 10, "blocks": BLOCKS})
    random = np.random.RandomState(0)
    images = random.standard_normal([16, IMAGE, IMAGE, 3]).astype(np.float32)
    return built.graph, built.fetches, {"images:0": images, "labels:0": random.randint(0, 10, 16).astype(np.int32)}


def at_size(graph_def, size):
    """Makes a graph of slim's ResNet-50 for 224 by 224 pixels one for `size`: what its gradients know of shapes."""
    sizes = {224 // by: size // by for by in (4, 8, 16, 32)}
    for node in graph_def.node:
        node.attr.pop("_output_shapes", None)
        if node.name == "images":
            for axis in (1, 2):
                node.attr["shape"].shape.dim[axis].size = size
        if node.op == "Const" and ("pool5_grad" in node.name or "Pad_grad" in node.name):
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.dtype == np.float32:  # the number of pixels behind the last mean
                value = value * np.float32((size / 224) ** 2)
            elif value.shape:
                value = np.array([sizes.get(size, size) for size in value], value.dtype)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def slim():
    """(graph, fetches, feeds) of the reference material's ResNet-50, with all its channels, at 64 by 64 pixels."""
    real = Real("resnet50_train")
    at_size(real.graph_def, IMAGE)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(real.graph_def, name="")
    return graph, real.fetches, {**real.fed, "images:0": real.fed["images:0"][:, :IMAGE, :IMAGE]}


class Checkpoints:
    """Writes the variables of a graph as a checkpoint, and reads them."""

    def __init__(self, graph, path):
        self._path = str(path)
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        with graph.as_default():
            values = [tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype")) for op in handles]
            names = [op.name for op in handles]
            slices = [""] * len(names)
            self._save = tf.raw_ops.SaveV2(
                prefix=self._path, tensor_names=names, shape_and_slices=slices, tensors=values
            )

    def of(self, session):
        """Returns the path of a checkpoint of the session's variables."""
        session.run(self._save)
        return self._path

    def values(self):
        """The slots of the optimizer in that checkpoint, which hold the gradients of the last steps, as one vector."""
        reader = tf.train.load_checkpoint(self._path)
        return vector({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})


def vector(state):
    return np.concatenate([state[name].ravel() for name in sorted(state) if name.endswith("Momentum")])


def follow(model, dtype, path, config=None, steps=STEPS, step_of=npu_shim.compile_step):
    """Asserts that steps of the session are those of the compiled step from the same states; returns the step.

    What `step_of` makes of session, fetches and feeds has the methods of a compiled step that are called here.
    """
    graph, fetches, fed = model
    checkpoints = Checkpoints(graph, path)
    random = np.random.RandomState(1)
    losses = []
    with tf.Session(graph=graph, config=config) as session:
        session.run("init")
        step = step_of(session, fetches, list(fed))
        for _ in range(steps):
            before = checkpoints.of(session)
            slots = checkpoints.values()
            moved = []
            for _ in range(CHANGES):
                signs = random.choice([-1, 1], fed["images:0"].shape)
                step.load(before)
                step({**fed, "images:0": (fed["images:0"] * (1 + SUMS[dtype] * signs)).astype(np.float32)})
                moved.append(vector(step.state()))
            step.load(before)
            loss, after = step(fed)[0], vector(step.state())
            losses.append(session.run(fetches, fed)[0])
            checkpoints.of(session)
            assert np.isclose(loss, losses[-1], rtol=LOSSES[dtype])
            assert not np.array_equal(after, slots)
            away = np.linalg.norm(after - checkpoints.values())
            assert away <= 2 * max(np.linalg.norm(after - other) for other in moved)
    assert losses[-1] < losses[0]
    return step


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """(what `thin` makes, its compiled step in float32 behind STEPS steps that were the session's)."""
    model = thin()
    return model, follow(model, "float32", tmp_path_factory.mktemp("float32") / "model")


@pytest.mark.nightly  # test_compiled_graphs.py has other networks in float32
def test_steps_are_those_of_the_session(followed):
    assert followed[1].plan is None


def test_steps_in_mixed_precision_are_those_of_the_session(tmp_path, patched):
    step = follow(thin(), "float16", tmp_path / "model", sessions.config(precision_mode="allow_mix_precision"))
    # of each bottleneck three convolutions, their gradients, and what lies between them
    assert sum(decision.becomes != decision.was for decision in step.plan.decisions()) > 12 * sum(BLOCKS)


@pytest.mark.nightly  # a step at full width takes seconds
def test_steps_of_the_graph_of_slim_are_those_of_the_session(tmp_path):
    follow(slim(), "float32", tmp_path / "model")


@pytest.mark.nightly
def test_ten_steps_in_one_call_are_the_single_steps_bit_by_bit(followed, tmp_path):
    (graph, fetches, fed), single = followed
    with tf.Session(graph=graph) as session:
        ten = npu_shim.compile_step(session, fetches, list(fed), iterations_per_loop=10, initializer="init")
    ten.load(single.save(tmp_path / "model"))
    losses = [single(fed)[0] for _ in range(10)]
    assert ten({name: np.stack([value] * 10) for name, value in fed.items()})[0] == losses[-1]
    one, other = single.state(), ten.state()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert len(set(losses)) == 10
