"""Shapes that go round loops and through containers, and the Sums in loops' gradients that they show to sum nothing."""

import random

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.graph.graph_view import Port
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.inference.shapes import Shapes
from npu_shim.rewriter.planner import report
from npu_shim.rewriter.tables.dtypes import FLOAT16

pytestmark = pytest.mark.usefixtures("control_flow")
MIX = {"precision_mode": "allow_mix_precision", "device": "GPU"}
lowers = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 has no GPU kernels to plan for")


@pytest.fixture(params=[1])
def control_flow(request):
    """Control flow of version 1, or of the version that a test asks for."""
    with sessions.control_flow(request.param):
        yield


both_versions = pytest.mark.parametrize("control_flow", [1, 2], indirect=True)
WEIGHT = np.linspace(-1, 1, 16).reshape(4, 4).astype(np.float32)


def product(x):
    return tf.matmul(x, tf.constant(WEIGHT))


def rewritten(fetches):
    """The graph of fetches, rewritten."""
    names = [fetch.name for fetch in fetches if fetch is not None]
    return npu_shim.rewrite(fetches[0].graph.as_graph_def(), names, **MIX)


def sums(fetches):
    """Dtypes of the Sums over the axes of a broadcast, in the graph and in its functions, whatever they are called."""
    graph_def, _ = rewritten(fetches)
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    axes = {node.name for node in nodes if node.op == "BroadcastGradientArgs"}
    broadcast = [node for node in nodes if node.op == "Sum" and node.input[1].split(":")[0] in axes]
    return sorted({tf.as_dtype(node.attr["T"].type).name for node in broadcast})


def gradients_of(loop, batch=None, **options):
    """The gradient of a loop from one matrix of four columns; `loop` is its body."""
    x = tf.placeholder(tf.float32, [batch, 4], "x")
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, loop(h, x)), [0, product(x)], **options)
    return [y, *tf.gradients(product(y), [x])]


def nested(h, x):
    return tf.while_loop(lambda j, _: j < 2, lambda j, g: (j + 1, tf.tanh(product(g)) * g), [0, h])[1]


def gated(h, x):
    gate = tf.sigmoid(product(h))
    return gate * tf.tanh(product(h)) + (1.0 - gate) * h


def recurrent(batch):
    """A training step of two recurrent cells over sequences."""
    x = tf.placeholder(tf.float32, [batch, None, 4])
    cells = [tf.nn.rnn_cell.BasicLSTMCell(4, name="cell%d" % k) for k in range(2)]
    cell = tf.nn.rnn_cell.MultiRNNCell(cells)
    lengths = tf.placeholder(tf.int32, [batch])
    y, _ = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32)
    return [y, *tf.gradients(product(tf.reshape(y, [-1, 4])), tf.trainable_variables())]


@lowers
@both_versions
@pytest.mark.parametrize("build", [lambda b: gradients_of(gated, b), lambda b: gradients_of(nested, b), recurrent])
def test_loops_over_dynamic_batches_stay_as_low_as_over_static_ones(build):
    counts = []
    for batch in (6, None):
        with tf.Graph().as_default():
            counts.append(report.summary(rewritten(build(batch))[1])["casts_to_float32"])
    assert counts[0] == counts[1]


@lowers
@both_versions
def test_weights_are_cast_before_the_loop():
    with tf.Graph().as_default(), tf.variable_scope("cells", use_resource=True):
        fetches = recurrent(None)
        graph_def, plan = rewritten(fetches)
    casts = [cast for cast in plan.casts if cast.dtype == FLOAT16 and not cast.folded]
    sources = [plan.view.nodes[cast.source.node].op for cast in casts]
    assert sources.count("ReadVariableOp") == 4
    assert not {"Enter", "Switch"}.intersection(sources)
    again, _ = npu_shim.rewrite(graph_def, [fetch.name for fetch in fetches], **MIX)
    assert again is graph_def


def shrinking(h, x):
    """The batch in the first iteration, one row in those after it, where the sum with x is a broadcast."""
    return tf.slice(product(h + product(x)), [0, 0], [1, 4])


def test_a_shape_that_changes_round_the_loop_is_not_known():
    invariants = [tf.TensorShape([]), tf.TensorShape([None, 4])]
    with tf.Graph().as_default():
        fetches = gradients_of(shrinking, shape_invariants=invariants)
        assert sums(fetches) == ["float32"]
        values = {"x:0": np.linspace(-1, 1, 12).reshape(3, 4)}
        with tf.Session() as session:
            plain = session.run(fetches, values)
    graph_def, _ = rewritten(fetches)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        mixed = session.run([fetch.name for fetch in fetches], values)
    for one, other in zip(plain, mixed):
        # seven products of rows of four numbers within one, each of which is rounded
        np.testing.assert_allclose(one, other, rtol=28 * 2**-11, atol=28 * 2**-11 * np.abs(one).max())


def test_nor_is_that_of_a_variable_that_takes_it_over_an_iteration_later():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        start = product(x)
        invariants = [tf.TensorShape([]), *[tf.TensorShape([None, 4])] * 3]

        def body(i, a, b, c):
            return i + 1, shrinking(a, x), a, product(b * c)

        out = tf.while_loop(lambda i, *_: i < 4, body, [0, start, start, start], shape_invariants=invariants)
        shapes = told(out[0].graph)
        merges = [shapes["while/Merge_%d" % number] for number in (1, 2, 3)]
        assert merges == [None, None, None]
        assert "float32" in sums([out[3], *tf.gradients(product(out[3]), [x])])


def told(graph, seed=None):
    """Name -> shape that is told of a node's first output, with nodes for their positions."""
    graph_def = graph.as_graph_def()
    nodes = list(graph_def.node)
    if seed is not None:
        random.Random(seed).shuffle(nodes)
        del graph_def.node[:]
        graph_def.node.extend(nodes)
    view = graphs.read(graph_def)
    shapes = Shapes(view, graph_def.node)
    asked = list(range(len(nodes)))
    random.Random(seed).shuffle(asked)
    shape_of = {nodes[p].name: shapes.shape(Port(p, 0)) for p in asked if view.nodes[p].layout.outputs}
    return {name: shape and tuple(_named(dim, nodes) for dim in shape) for name, shape in shape_of.items()}


def _named(dim, nodes):
    return dim if isinstance(dim, int) else (dim[0], nodes[dim[1]].name, *dim[2:])


GRAPHS = {
    "gated": lambda: gradients_of(gated),
    "nested": lambda: gradients_of(nested),
    "recurrent": lambda: recurrent(None),
    "shrinking": lambda: gradients_of(shrinking, shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])]),
    "array": lambda: array_that_feeds_itself(),
}


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_a_symbol_is_one_number_wherever_it_is_told(name):
    """Of all tensors that can be fetched, which those in loops cannot, in a run with five rows of three steps."""
    with tf.Graph().as_default() as graph:
        GRAPHS[name]()
        ops = [op for op in graph.get_operations() if op.outputs and op.outputs[0].dtype.base_dtype != tf.resource]
        given = [op.outputs[0] for op in ops if op.type == "Placeholder"]
        feeds = {x: np.full([5, 3, 4] if x.shape.rank == 3 else [5, 4][: x.shape.rank], 3) for x in given}
        known = told(graph)
        outside = [op for op in ops if graph.is_fetchable(op) and op.type != "Enter"]
        shapes = {op.outputs[0]: known[op.name] for op in outside if known[op.name]}
        with sessions.started() as session:
            values = session.run(list(shapes), feeds)
    numbers = {}
    for (tensor, shape), value in zip(shapes.items(), values):
        assert len(shape) == value.ndim, tensor
        for dim, size in zip(shape, value.shape):
            assert size == (dim if isinstance(dim, int) else numbers.setdefault(dim, size)), tensor
    assert 5 in numbers.values()


def test_what_is_told_depends_neither_on_the_order_of_nodes_nor_of_questions():
    with tf.Graph().as_default() as graph:
        gradients_of(shrinking, shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])])
        gradients_of(gated)
        array_that_feeds_itself()
    first = told(graph)
    assert any(shape for shape in first.values())
    for seed in range(3):
        assert told(graph, seed) == first


def array_that_feeds_itself():
    """Each element of a TensorArray is made from the one before it, and the first from a placeholder."""
    x = tf.placeholder(tf.float32, [None, 4])
    array = tf.TensorArray(tf.float32, 4, infer_shape=False, element_shape=None, clear_after_read=False)

    def body(i, array):
        return i + 1, array.write(i, product(array.read(i - 1))[:1])

    _, array = tf.while_loop(lambda i, _: i < 4, body, [1, array.write(0, product(x))])
    return array.read(3, name="itself")


@pytest.mark.parametrize("same", [True, False])
def test_elements_of_an_array_have_a_shape_if_all_that_is_written_has_it(same):
    with tf.Graph().as_default() as graph:
        x, y = (tf.placeholder(tf.float32, [None, 4], name) for name in "xy")
        array = tf.TensorArray(tf.float32, 2, infer_shape=False, element_shape=None)
        array = array.write(0, product(x)).write(1, tf.tanh(x if same else y))
        array.read(1, name="read")
    assert told(graph)["read"] == ((("dim", "x", 0, 0), 4) if same else None)


def popped_sum(one, other):
    """A Sum over the axes of a broadcast of two shapes that were pushed on one stack."""
    stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.int32)
    pushed = tf.raw_ops.StackPushV2(handle=stack, elem=tf.shape(one))
    with tf.control_dependencies([pushed]):
        pushed = tf.raw_ops.StackPushV2(handle=stack, elem=tf.shape(other))
    with tf.control_dependencies([pushed]):
        first = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.int32)
    with tf.control_dependencies([first]):
        second = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.int32)
    axes = tf.raw_ops.BroadcastGradientArgs(s0=first, s1=second)
    return tf.reduce_sum(one, axes.r0)


@lowers
def test_what_is_popped_is_known_if_all_that_is_pushed_is_the_same():
    with tf.Graph().as_default():
        x, y = (tf.placeholder(tf.float32, [None, 4]) for _ in range(2))
        assert sums([product(popped_sum(product(x), tf.tanh(x)))]) == ["float16"]
    with tf.Graph().as_default():
        x, y = (tf.placeholder(tf.float32, [None, 4]) for _ in range(2))
        assert sums([product(popped_sum(product(x), y))]) == ["float32"]


@pytest.mark.parametrize("counts", [True, False])
def test_a_dimension_of_one_iteration_is_not_that_of_another(counts):
    """What two iterations push has the same symbols; it is the same only where these are of what is outside."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.float32)

        def body(i):
            filled = tf.fill(tf.stack([i if counts else tf.shape(x)[0], 4]), 1.0, name="filled")
            with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=stack, elem=filled)]):
                return tf.identity(i + 1)

        with tf.control_dependencies([tf.while_loop(lambda i: i < 3, body, [1])]):
            tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32, name="popped")
    shapes = told(graph)
    assert len(shapes["while/filled"]) == 2
    assert shapes["popped"] == (None if counts else (("dim", "x", 0, 0), 4))
