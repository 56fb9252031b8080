"""Compiled steps on CPUs in low precision give the session's values."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = sessions.COMPILED
LOW = {"allow_mix_precision": 2.0**-10, "allow_mix_precision_bf16": 2.0**-7}


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


@pytest.mark.parametrize(("mode", "in_branch"), [("allow_mix_precision", False), ("allow_mix_precision_bf16", True)])
def test_values_are_those_of_the_session(mode, in_branch):
    graph, fetches = network(in_branch)
    x = np.random.RandomState(2).normal(size=[4, 8, 8, 3]).astype("f")
    with tf.Session(graph=graph, config=sessions.config(precision_mode=mode)) as session:
        session.run("init")
        expected = session.run(fetches, {"x:0": x})
        step = npu_shim.compile_step(session, fetches, ["x"], device="CPU")
        assert sum(decision.becomes != decision.was for decision in step.plan.decisions()) > 5
        for value, wanted in zip(step({"x": x}), expected):
            np.testing.assert_allclose(value, wanted, rtol=0, atol=4 * LOW[mode] * np.abs(wanted).max())
