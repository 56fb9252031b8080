"""On CPUs the ops that XLA is slow at stay outside of a session's clusters."""

import collections
import pathlib
import re
import statistics

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.tf_internals import op_defs
from npu_shim.session import devices
from npu_shim.session.clusters import MARK, mark, slow_ops

MEASURED = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "xla_ops.md"
DEPTHWISE = "DepthwiseConv2dNative"


def test_the_table_is_what_was_measured():
    ratios = collections.defaultdict(list)
    row = re.compile(r"^\| (\w+) \|[^|]*\| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", re.MULTILINE)
    for op, ratio in row.findall(MEASURED.read_text()):
        ratios[op].append(float(ratio))
    medians = {op: statistics.median(values) for op, values in ratios.items()}
    above = {op for op, median in medians.items() if median > slow_ops.LIMIT}
    assert above == set(slow_ops.SLOW) | slow_ops.INSIDE | {slow_ops.BIAS}
    assert {op: pytest.approx(medians[op], abs=0.051) for op in slow_ops.SLOW} == slow_ops.SLOW
    assert set(slow_ops.SLOW) <= set(op_defs())


@pytest.fixture
def separable():
    """A graph with a depthwise and a plain convolution, loss, gradients and an update."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 8, 8, 4], "x")
        random = np.random.RandomState(0)
        weights = [random.normal(size=shape).astype("f") for shape in ((3, 3, 4, 2), (1, 1, 8, 8))]
        deep, wide = [tf.get_variable("w%d" % n, initializer=w, use_resource=True) for n, w in enumerate(weights)]
        y = tf.nn.depthwise_conv2d(tf.tanh(x), deep, [1, 1, 1, 1], "SAME")
        y = tf.nn.conv2d(tf.nn.relu(y) * 0.5, wide, 1, "SAME")
        for _ in range(4):  # enough for a cluster
            y = tf.sigmoid(y * 1.5 + 1.0)
        loss = tf.reduce_mean(tf.square(y), name="loss")
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="step")
        tf.global_variables_initializer()
    return graph


def marked(graph_def):
    return {node.op for node in graphs.after(mark, graph_def).node if node.attr[MARK].b}


def test_they_are_not_marked_on_a_cpu_and_are_on_a_gpu(separable, monkeypatch):
    slow = {DEPTHWISE, DEPTHWISE + "BackpropFilter", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"}
    monkeypatch.setattr(devices, "accelerator", lambda: "CPU")
    on_cpu = marked(separable.as_graph_def())
    assert not on_cpu & set(slow_ops.SLOW)
    assert {"Tanh", "Relu", "Sigmoid", "SigmoidGrad"} <= on_cpu
    monkeypatch.setattr(devices, "accelerator", lambda: "GPU")
    assert slow | on_cpu <= marked(separable.as_graph_def())


def test_a_biass_gradient_is_left_out_where_it_is_that_of_a_convolution():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 8, 8, 4])
        y = tf.layers.dense(tf.layers.flatten(tf.layers.conv2d(x, 8, 3, activation=tf.nn.relu)), 8, tf.nn.relu)
        tf.gradients(tf.reduce_sum(y), tf.trainable_variables())
    biases = {node.name for node in graph.as_graph_def().node if node.op == slow_ops.BIAS}
    out = slow_ops.excluded(graphdef.read(graph.as_graph_def()))
    assert len(biases) == 2
    assert biases & out == {name for name in biases if "conv2d" in name}


def test_calls_of_functions_that_have_one_are_left_out_too():
    graph_def = tf.GraphDef()
    for name, body in (("fast", "Tanh"), ("slow", "Cumsum"), ("calls", "slow")):
        function = graph_def.library.function.add()
        function.signature.name = name
        function.node_def.add(name="n", op=body)
    for name in ("fast", "slow", "calls"):
        graph_def.node.add(name="by_op_" + name, op=name)
        graph_def.node.add(name="by_attr_" + name, op="PartitionedCall").attr["f"].func.name = name
    several = graph_def.node.add(name="case", op="Case")
    several.attr["branches"].list.func.add(name="fast")
    several.attr["branches"].list.func.add(name="calls")
    expected = {"case", *(how + name for how in ("by_op_", "by_attr_") for name in ("slow", "calls"))}
    assert slow_ops.excluded(graphdef.read(graph_def)) == expected


@pytest.mark.usefixtures("patched")
def test_a_session_with_xla_runs_them_by_their_kernels(separable, monkeypatch):
    monkeypatch.setattr(devices, "accelerator", lambda: "CPU")
    given = {"x:0": np.random.RandomState(1).normal(size=[2, 8, 8, 4])}
    ran = {}
    for switch in ("on", "off"):
        config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_xla=switch)
        with tf.Session(graph=separable, config=config) as session:
            session.run("init")
            session.run(["loss:0", "step"], given)
            ran[switch] = sessions.Ran(session, ["loss:0", "step"], given)
    ops = {switch: [node.op for node in run.nodes] for switch, run in ran.items()}
    for switch, count in (("on", 0), ("off", 4)):  # the chain is in a cluster, the convolutions are not
        assert ops[switch].count("Sigmoid") == count
        assert len([op for op in ops[switch] if op.endswith(DEPTHWISE)]) == 1  # oneDNN's has a name of its own
    np.testing.assert_allclose(ran["on"].values[0], ran["off"].values[0], rtol=64 * 2**-24)
