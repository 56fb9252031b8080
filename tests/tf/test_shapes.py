"""Shapes told without running, and what they are for: a gradient's Sum that sums nothing only moves data."""

from dataclasses import replace

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.graph.graph_view import Port
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.inference.shapes import Shapes
from npu_shim.rewriter.planner import report

MIX = {"precision_mode": "allow_mix_precision", "device": "GPU"}


def residual_mlp(batch, attention=False):
    """A training step of residual layers; `batch` is None for a batch size that is only known at run time."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [batch, 8], "x")
        h = tf.nn.relu(tf.matmul(x, tf.get_variable("w0", [8, 16])))
        for layer in range(3):
            inner = tf.nn.relu(tf.layers.dense(h, 16, name="layer%d" % layer))
            h = h + tf.nn.dropout(inner, rate=0.1) if layer else h * inner
        if attention:
            heads = tf.transpose(tf.reshape(h, [tf.shape(h)[0] // 2, 2, 4, 4]), [0, 2, 1, 3])
            scores = tf.matmul(heads, heads, transpose_b=True)
            h = tf.reshape(tf.transpose(tf.matmul(scores, heads), [0, 2, 1, 3]), [-1, 16])
        labels = tf.placeholder(tf.int32, [batch], "labels")
        loss = tf.losses.sparse_softmax_cross_entropy(labels, h)
        tf.identity(loss, name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="step")
    return graph.as_graph_def()


@pytest.mark.parametrize("attention", [False, True])
def test_dynamic_shapes_need_no_more_casts_than_static_ones(attention):
    counts = []
    for batch in (4, None):
        _, plan = npu_shim.rewrite(residual_mlp(batch, attention), ["loss", "step"], **MIX)
        summary = report.summary(plan)
        counts.append((summary["casts_to_low"], summary["casts_to_float32"]))
    assert counts[0] == counts[1]


def sums(build, **options):
    """Dtypes of the Sums of a gradient with respect to both arguments of an op on low-precision values."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        y = tf.placeholder(tf.float32, [None, 4], "y")
        one, other = tf.matmul(x, tf.ones([4, 4])), tf.matmul(y, tf.ones([4, 4]))
        out = tf.matmul(build(one, other), tf.ones([4, 4]))
        fetches = [g.name for g in tf.gradients(out, [one, other]) if g is not None]
    result, _ = npu_shim.rewrite(graph.as_graph_def(), fetches, **MIX, **options)
    return sorted({tf.as_dtype(node.attr["T"].type).name for node in result.node if node.op == "Sum"})


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 has no GPU kernels to plan for")
def test_a_sum_over_a_broadcast_axis_stays_in_float32():
    assert sums(lambda a, b: a * tf.nn.relu(a)) == ["float16"]
    assert sums(lambda a, b: a * b) == ["float32"]  # the batch sizes of two placeholders may differ
    assert "float32" in sums(lambda a, b: a * b[0])
    assert sums(lambda a, b: a[:1] * b) == ["float32"]


def test_a_sum_that_the_user_black_listed_stays_in_float32(tmp_path):
    path = tmp_path / "mixlist.json"
    path.write_text('{"black-list": {"to-add": ["ReduceSum"]}}')
    assert sums(lambda a, b: a * tf.nn.relu(a), modify_mixlist=str(path)) == ["float32"]


def test_nothing_is_known_of_what_is_fed():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 8])
        tf.identity(tf.nn.relu(tf.nn.tanh(x, name="fed")), name="out")
    graph_def = graph.as_graph_def()
    view = graphs.read(graph_def)
    fed, out = (Port(view.positions()[name], 0) for name in ("fed", "out"))
    assert Shapes(view, graph_def.node).shape(out) == (4, 8)
    assert Shapes(replace(view, fed=frozenset([fed])), graph_def.node).shape(out) is None


def disagreements(graph_def):
    """Nodes whose told shape is not that of TensorFlow's own inference, and how many agree in every number."""
    view = graphs.read(graph_def)
    shapes = Shapes(view, graph_def.node)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    wrong, agreed = [], 0
    for position, node in enumerate(view.nodes):
        told = shapes.shape(Port(position, 0)) if node.layout.outputs and node.op != "VarHandleOp" else None
        true = graph.get_operation_by_name(node.name).outputs[0].shape if told is not None else None
        if told is None or true.rank is None:
            continue
        numbers = [(a, b) for a, b in zip(told, true.as_list()) if isinstance(a, int) and b is not None]
        if len(told) != true.rank or any(a != b for a, b in numbers):
            wrong.append((node.name, node.op, told, true))
        agreed += len(numbers) == len(told)
    return wrong, agreed


def ops_of_every_kind(batch):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [batch, 3, 4], "x")
        flat = tf.reshape(x, [-1, 12])
        wide = tf.matmul(flat, tf.zeros([5, 12]), transpose_b=True)
        tf.stack([tf.shape(wide)[0], 5])
        tf.reshape(wide, tf.concat([tf.shape(x)[:1], [1, 5]], 0))
        tf.expand_dims(tf.squeeze(tf.expand_dims(wide, 1), [1]), -1)
        tf.reduce_sum(x, [-1], keepdims=True) * x
        tf.reduce_mean(x, [0, 2])
        tf.gather(tf.zeros([9, 2]), tf.zeros([6, 7], tf.int32))
        tf.matmul(x, x, adjoint_a=True)
        tf.where(x > 0, x, tf.fill(tf.shape(x), 2.0))
        tf.gradients(tf.nn.tanh(wide) + tf.random.uniform(tf.shape(wide)), [x])
        tf.transpose(x, [2, 0, 1])[1:]
    return graph.as_graph_def()


@pytest.mark.parametrize(("batch", "least"), [(2, 50), (None, 25)])  # a dynamic dimension is a symbol, and counts not
def test_what_is_told_is_what_tensorflow_infers(batch, least):
    wrong, agreed = disagreements(ops_of_every_kind(batch))
    assert wrong == []
    assert agreed > least


def test_a_low_sum_gives_the_bits_that_it_gets():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        h = tf.matmul(x, tf.constant(np.linspace(-1, 1, 16).reshape(4, 4), tf.float32))
        tf.gradients(tf.matmul(h * h, tf.ones([4, 4])), [h], name="g")
        tf.identity(tf.gradients(tf.matmul(h * h, tf.ones([4, 4])), [h])[0], name="out")
    # on a CPU such a Sum runs in float32 on rounded values
    result, _ = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode="allow_mix_precision", device="GPU")
    low = [node for node in result.node if node.op == "Sum" and node.attr["T"].type == tf.float16.as_datatype_enum]
    assert low
    out = [run(result)]
    for node in low:
        node.op = "Identity"
        del node.input[1], node.attr["Tidx"], node.attr["keep_dims"]
    np.testing.assert_array_equal(out[0], run(result))


def run(graph_def):
    return sessions.run_graph(graph_def, "out:0", {"x:0": np.arange(12).reshape(3, 4) / 7})


@pytest.mark.parametrize("name", ["bert_tiny_train", "crnn_ctc_train", "lstm_lm_train", "resnet50_train"])
def test_on_real_graphs_what_is_told_is_what_tensorflow_infers(name):
    about, graph_def = reference_material.about(name), reference_material.training_graph(name)
    for node in graph_def.node:
        if node.op == "Placeholder" and node.name + ":0" in about["feeds"]:
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(about["feeds"][node.name + ":0"][1:]).as_proto())
    wrong, agreed = disagreements(graph_def)
    assert wrong == []
    assert agreed > len(graph_def.node) / 4
