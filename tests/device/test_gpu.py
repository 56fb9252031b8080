"""On a GPU: a training step in float16, compiled by XLA."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer
from npu_shim.session import devices


@pytest.fixture(autouse=True)
def gpu():
    if devices.accelerator() != "GPU":
        pytest.skip("TensorFlow sees no GPU here")


def mixed_precision():
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "NpuOptimizer"
    entry.parameter_map["precision_mode"].s = b"allow_mix_precision"
    return config


def test_a_step_runs_in_float16_in_xla_clusters(caplog):
    caplog.set_level("INFO", logger="npu_shim")
    npu_shim.patch()
    try:
        with tf.Graph().as_default(), tf.Session(config=mixed_precision()) as session:
            x = tf.placeholder(tf.float32, [32, 16, 16, 8], "x")
            kernel = tf.get_variable("kernel", [3, 3, 8, 64], use_resource=True)
            loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))))
            step = tf.train.AdamOptimizer(1e-2).minimize(loss)
            session.run(tf.global_variables_initializer())
            feeds = {x: np.random.RandomState(0).randn(32, 16, 16, 8)}
            losses = [session.run([loss, step], feeds)[0] for _ in range(20)]
    finally:
        npu_shim.unpatch()
    lines = [record.getMessage() for record in caplog.records]
    assert any("float16" in line for line in lines)
    assert any("XLA compiles" in line for line in lines)
    assert losses[-1] < losses[0]


def test_a_step_that_overflows_is_skipped_in_xla():
    npu_shim.patch()
    try:
        with tf.Graph().as_default(), tf.Session(config=mixed_precision()) as session:
            x = tf.placeholder(tf.float32, [32, 64], "x")
            h = x
            for number in range(3):
                h = tf.nn.relu(tf.matmul(h, tf.get_variable("w%d" % number, [64, 64], use_resource=True)))
            manager = ExponentialUpdateLossScaleManager(2.0**10, 1000, 1, decr_ratio=0.5, use_resource=True)
            step = NPULossScaleOptimizer(tf.train.AdamOptimizer(1e-2), manager).minimize(tf.reduce_mean(tf.square(h)))
            session.run(tf.global_variables_initializer())
            seen, options = tf.RunMetadata(), tf.RunOptions(output_partition_graphs=True)
            states = []
            for value in (1.0, np.inf, 1.0):
                session.run(step, {x: np.full([32, 64], value)}, options, seen)
                states.append(session.run(tf.trainable_variables()))
            scale = session.run(manager.get_loss_scale())
    finally:
        npu_shim.unpatch()
    assert any("_XlaMustCompile" in node.attr for graph in seen.partition_graphs for node in graph.node)
    assert all(np.array_equal(*pair) for pair in zip(states[0], states[1]))
    assert not all(np.array_equal(*pair) for pair in zip(states[1], states[2]))
    assert scale == 2.0**9
