"""Convolutions that a CPU runs with oneDNN only, or without it only, and what is said where it is off."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
from npu_shim.rewriter import tf_internals
from npu_shim.session.passes import onednn

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 has no oneDNN")
DEPTHWISE = "DepthwiseConv2dNative"
KEPT = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}
IMAGE = np.random.RandomState(0).randint(-3, 4, [2, 4, 7, 7]).astype("f")
KERNEL = np.random.RandomState(1).randint(-3, 4, [3, 3, 4, 4]).astype("f")
DEEP = np.random.RandomState(2).randint(-3, 4, [1, 4, 5, 5, 5]).astype("f")


def plane(x, layout):
    return tf.nn.conv2d(x, tf.cast(KERNEL, x.dtype), strides=1, padding="SAME", data_format=layout)


def depthwise(x, layout):
    kernel = tf.cast(KERNEL[..., :1], x.dtype)
    return tf.nn.depthwise_conv2d(x, kernel, strides=[1] * 4, padding="SAME", data_format=layout)


def solid(x, layout):
    return tf.nn.conv3d(x, tf.cast(KERNEL[None], x.dtype), strides=[1] * 5, padding="SAME", data_format=layout)


def trained(op, value, dtype, first):
    """[a sum of integers, its gradients by the image with channels first]."""
    with tf.Graph().as_default():
        image = x = tf.constant(value, dtype)
        layout = {4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}[value.ndim][first]
        if not first:
            x = tf.transpose(image, [0, *range(2, value.ndim), 1])
        total = tf.reduce_sum(op(x, layout))
        with tf.Session(config=sessions.config(**KEPT)) as session:
            return session.run([total, *tf.gradients(total, [image])])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("op", "value"), [(plane, IMAGE), (depthwise, IMAGE), (solid, DEEP)])
def test_channels_first_run_in_every_dtype(patched, op, value, dtype):
    """oneDNN has float32, and bfloat16 on some processors: of others TensorFlow said that it has channels last only."""
    for one, other in zip(trained(op, value, dtype, True), trained(op, value, dtype, False)):
        np.testing.assert_array_equal(one, other)


def graph_of(op, dtype=tf.float32, **more):
    with tf.Graph().as_default() as graph:
        kernel = {"Conv2D": [3, 3, 4, 4], "Conv3D": [3, 3, 3, 4, 4], DEPTHWISE: [3, 3, 4, 1]}[op]
        x = tf.placeholder(dtype, [2, *[9] * (len(kernel) - 2), 4])
        y = getattr(tf.raw_ops, op)(
            input=x, filter=tf.ones(kernel, dtype), strides=[1] * len(kernel), padding="SAME",
            dilations=[1, *[more.get("dilation", 1)] * (len(kernel) - 2), 1],
        )  # fmt: skip
        tf.gradients(y, [x])
    return graph.as_graph_def()


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setattr(tf_internals, "onednn_is_on", lambda: False)


@pytest.mark.parametrize(
    ("op", "dilation", "named"),
    [
        ("Conv2D", 1, ["Conv2DBackpropFilter", "Conv2DBackpropInput"]),
        ("Conv3D", 1, []),
        ("Conv3D", 2, ["Conv3D", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2"]),
        (DEPTHWISE, 1, []),
        (DEPTHWISE, 2, [DEPTHWISE, DEPTHWISE + "BackpropFilter", DEPTHWISE + "BackpropInput"]),
    ],
)
def test_what_tensorflow_refuses_runs_by_onednn(off, op, dilation, named):
    name_kernels = graphs.after(onednn.name_kernels, graph_of(op, dilation=dilation))
    assert sorted(node.op for node in name_kernels.node if node.op[0] == "_") == [
        onednn.PREFIX + name for name in named
    ]


LATE = "TensorFlow was imported before npu_shim"


@pytest.mark.parametrize(
    ("switch", "dtype", "words"),
    [
        ("1", tf.float32, [LATE, "sum in another order", "import npu_shim first"]),
        ("1", tf.bfloat16, [LATE, "refuse bfloat16 convolutions", "import npu_shim first"]),
        ("0", tf.bfloat16, ["TF_ENABLE_ONEDNN_OPTS=0", "refuse bfloat16 convolutions", "TF_ENABLE_ONEDNN_OPTS=1"]),
        ("0", tf.float32, []),
    ],
)
def test_a_line_says_that_it_is_off(off, monkeypatch, caplog, switch, dtype, words):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", switch)
    for _ in range(2):
        graphs.after(onednn.name_kernels, graph_of("Conv2D", dtype))
    assert len(caplog.messages) == bool(words)
    assert all(word in caplog.messages[0] for word in words)


def test_nothing_is_said_of_graphs_without_convolutions_and_where_it_is_on(monkeypatch, caplog):
    for is_on, graph_def in ((True, graph_of("Conv2D")), (False, tf.GraphDef())):
        monkeypatch.setattr(tf_internals, "onednn_is_on", lambda is_on=is_on: is_on)
        assert graphs.after(onednn.name_kernels, graph_def) is graph_def
    assert not caplog.messages
