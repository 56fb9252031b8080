"""Channels first on a CPU: what a session turns to channels last, and what it leaves alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
from npu_shim.rewriter import tf_internals
from npu_shim.session.passes import channels, onednn

FIRST = [2, 4, 8, 8]
IMAGE = np.random.RandomState(0).normal(size=FIRST).astype("f")
ON = [False] if tf.__version__.startswith("1.") else [False, True]


@pytest.fixture(params=ON)
def onednn_on(request, monkeypatch):
    """Sessions are told that oneDNN is off, or is on; what TensorFlow itself does was decided at its import."""
    monkeypatch.setattr(tf_internals, "onednn_is_on", lambda: request.param)
    return request.param


def trained(make, shape=FIRST):
    """[a mean of squares, its gradients by the image] of a session in float32."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, shape)
        loss = tf.reduce_mean(tf.square(make(x)))
        with tf.Session(config=sessions.config(precision_mode="force_fp32")) as session:
            fetches = [loss, *tf.gradients(loss, [x])]
            return session.run(fetches, {x: IMAGE if shape == FIRST else np.transpose(IMAGE, [0, 2, 3, 1])})


def looped(layout):
    def body(i, h):
        return i + 1, tf.nn.max_pool2d(tf.nn.avg_pool2d(h, 2, 1, "SAME", layout) * 0.5, 3, 1, "SAME", layout)

    def make(x):
        with sessions.control_flow(1):
            return tf.while_loop(lambda i, _: i < 2, body, (0, x))[1]

    return make


def padded(layout):
    channels_first = layout == "NCHW"
    pads = [[0, 0], [0, 0], [1, 2], [3, 0]] if channels_first else [[0, 0], [1, 2], [3, 0], [0, 0]]
    kernel = np.random.RandomState(1).normal(size=[3, 3, 4, 8]).astype("f")
    strides = [1, 1, 2, 1] if channels_first else [1, 2, 1, 1]
    return lambda x: tf.nn.conv2d(x, kernel, strides=strides, padding=pads, data_format=layout)


def pooled(op):
    def of(layout):
        window = [1, 1, 3, 2] if layout == "NCHW" else [1, 3, 2, 1]
        return lambda x: op(x, window, window, "SAME", layout)

    return of


FORMS = {"loop": looped, "maximum": pooled(tf.nn.max_pool2d), "mean": pooled(tf.nn.avg_pool2d), "padded": padded}


@pytest.mark.parametrize("form", FORMS)
def test_values_are_those_of_channels_last(form, onednn_on, patched):
    """TensorFlow 2.15.1 with oneDNN on took one pool for the other, of the same sizes in the other layout."""
    for _ in range(3):
        with tf.Graph().as_default():
            last = trained(FORMS[form]("NHWC"), [2, 8, 8, 4])
        with tf.Graph().as_default():
            first = trained(FORMS[form]("NCHW"))
        eps = np.finfo("f").eps
        np.testing.assert_allclose(first[0], last[0], rtol=64 * eps)
        np.testing.assert_allclose(np.transpose(first[1], [0, 2, 3, 1]), last[1], rtol=0, atol=64 * eps)


def graph_of(make):
    with tf.Graph().as_default() as graph:
        make(tf.placeholder(tf.float32, FIRST))
    return graph.as_graph_def()


def test_pools_turn_always_and_convolutions_where_onednn_is_off(onednn_on):
    def both(x):
        convolved = tf.nn.conv2d(x, tf.ones([1, 1, 4, 4]), 1, "SAME", data_format="NCHW")
        return tf.nn.max_pool2d(convolved, 2, 2, "SAME", "NCHW")

    converted = graphs.after(channels.to_channels_last, graph_of(both))
    layouts = {node.op: node.attr["data_format"].s for node in converted.node if "data_format" in node.attr}
    assert layouts == {"MaxPool": b"NHWC", "Conv2D": b"NCHW" if onednn_on else b"NHWC"}
    assert graphs.after(channels.to_channels_last, converted) is converted


def last(x):
    return tf.nn.max_pool2d(tf.transpose(x, [0, 2, 3, 1]), 2, 2, "SAME")


def on_a_gpu(x):
    with tf.device("/gpu:0"):
        return tf.nn.max_pool2d(x, 2, 2, "SAME", "NCHW")


def by_xla(x):
    pooled = tf.nn.max_pool2d(x, 2, 2, "SAME", "NCHW")
    pooled.op._set_attr("_xla_compile_id", tf.AttrValue(s=b"0"))


IMPORTS = """
import os
{0}import npu_shim
print("oneDNN", os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
"""


@pytest.mark.parametrize(("before", "given", "is_now"), [
    ("", None, "1"), ("", "0", "0"), ("import tensorflow\n", None, "None"),
])  # fmt: skip
def test_the_import_switches_onednn_on_where_nobody_chose_and_it_is_not_too_late(before, given, is_now):
    env = {key: value for key, value in os.environ.items() if key != "TF_ENABLE_ONEDNN_OPTS"}
    script = IMPORTS.format(before)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**env, **({"TF_ENABLE_ONEDNN_OPTS": given} if given else {})},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["oneDNN", is_now]


@pytest.mark.parametrize("make", [last, on_a_gpu, by_xla])
def test_left_as_it_is(make, onednn_on):
    graph_def = graph_of(make)
    assert graphs.after(channels.to_channels_last, graph_def) is graph_def
    assert graphs.after(onednn.name_kernels, graph_def) is graph_def
