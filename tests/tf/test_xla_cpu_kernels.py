"""Programs for CPUs compute low precision with float32's kernels, as sessions do, and give the session's values."""

import re

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.xla import step_function

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")
LOW = {"allow_mix_precision": ("f16", 2.0**-10), "allow_mix_precision_bf16": ("bf16", 2.0**-7)}
OPS = "convolution|dot|reduce-window|select-and-scatter"


@pytest.fixture(autouse=True)
def patched():
    npu_shim.patch()
    yield
    npu_shim.unpatch()


def network(in_branch=False):
    """Convolution, pool and product, with their gradients; `in_branch`: the product in a function of a tf.cond."""
    graph = tf.Graph()
    with graph.as_default(), sessions.control_flow(2):
        random = np.random.RandomState(1)
        x = tf.placeholder(tf.float32, [4, 8, 8, 3], "x")
        w = tf.get_variable("w", initializer=random.normal(size=[3, 3, 3, 8]).astype("f") * 0.3, use_resource=True)
        v = tf.get_variable("v", initializer=random.normal(size=[128, 5]).astype("f") * 0.3, use_resource=True)
        net = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), tf.ones([8]))), 2, 2, "SAME")
        net = tf.reshape(net, [4, 128])
        net = tf.cond(x[0, 0, 0, 0] < 9, lambda: tf.tanh(net @ v), lambda: net[:, :5]) if in_branch else net @ v
        loss = tf.reduce_mean(tf.square(tf.cast(net, tf.float32)), name="loss")
        gradients = tf.gradients(loss, [w, v])
        fetches = [loss.name, *(gradient.name for gradient in gradients)]
        tf.global_variables_initializer()
    return graph, fetches


@pytest.mark.parametrize("mode", LOW)
@pytest.mark.parametrize("in_branch", [False, True])
def test_products_and_windows_are_float32_and_values_the_sessions(mode, in_branch):
    low, epsilon = LOW[mode]
    graph, fetches = network(in_branch)
    x = np.random.RandomState(2).normal(size=[4, 8, 8, 3]).astype("f")
    with tf.Session(graph=graph, config=sessions.config(precision_mode=mode)) as session:
        session.run("init")
        expected = session.run(fetches, {"x:0": x})
        step = npu_shim.compile_step(session, fetches, ["x"], device="CPU")
        assert step.plan.decisions()
        for value, wanted in zip(step({"x": x}), expected):
            np.testing.assert_allclose(value, wanted, rtol=0, atol=4 * epsilon * np.abs(wanted).max())
        hlo = step_function.build(session, fetches, ["x"], device="CPU").hlo()
        assert re.search(r"= f32\S* (%s)\(" % OPS, hlo)
        assert not re.search(r"= %s\S* (%s)\(" % (low, OPS), hlo)
        assert re.search(r"= %s\S* convert\(" % low, hlo)


def test_a_program_for_a_gpu_keeps_its_low_products():
    graph, fetches = network()
    given = {"x": [4, 8, 8, 3]}
    plain = step_function.build(graph, fetches, given, precision_mode="allow_mix_precision")
    gpu = step_function.build(graph, fetches, given, device="GPU", precision_mode="allow_mix_precision")
    assert gpu.graph_def == plain.graph_def
    for op in ("convolution", "dot"):
        assert re.search(r"= f16\S* %s\(" % op, gpu.hlo())
