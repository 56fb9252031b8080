"""On a GPU: a training step in float16, compiled by XLA."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import xla


@pytest.fixture(autouse=True)
def gpu():
    if xla.accelerator() != "GPU":
        pytest.skip("TensorFlow sees no GPU here")


def test_a_step_runs_in_float16_in_xla_clusters(caplog):
    caplog.set_level("INFO", logger="npu_shim")
    npu_shim.patch()
    try:
        config = tf.ConfigProto()
        entry = config.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = "NpuOptimizer"
        entry.parameter_map["precision_mode"].s = b"allow_mix_precision"
        with tf.Graph().as_default(), tf.Session(config=config) as session:
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
