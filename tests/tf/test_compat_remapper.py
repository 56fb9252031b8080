"""A layer norm written by hand runs under `npu-shim run`, where TensorFlow 2.15's remapper ends the process."""

import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat.behaviour import remapper

SCRIPT = """
import numpy as np
import tensorflow as tf

x = tf.placeholder(tf.float32, [None, 6, 8])
mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
gamma, beta = tf.get_variable("gamma", [8]), tf.get_variable("beta", [8])
y = gamma * (x - mean) / (variance + 1e-8) ** 0.5 + beta
z = gamma * ((x - mean) / (variance + 1e-8) ** 0.5) + beta
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for layer in (y, z):
        print("shape", session.run(layer, {x: np.ones([2, 6, 8])}).shape)
"""


def test_a_layer_norm_that_is_evaluated_does_not_end_the_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "npu_shim", "run", str(script)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("shape (2, 6, 8)") == 2


def remapping(config):
    return config and config.graph_options.rewrite_options.remapping


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_the_remapper_is_off_where_a_variance_is_or_may_come(graph):
    off = tf.ConfigProto().graph_options.rewrite_options.OFF
    assert remapping(remapper.without_remapper(graph, None)) == off  # nothing is built yet
    x = tf.constant([1.0, 2.0])
    assert remapper.without_remapper(graph, None) is None
    variance = tf.reduce_mean(tf.squared_difference(x, 1.0))
    assert remapper.without_remapper(graph, None) is None
    tf.rsqrt(variance)
    given = tf.ConfigProto(allow_soft_placement=True)
    changed = remapper.without_remapper(graph, given)
    assert (remapping(changed), changed.allow_soft_placement, remapping(given)) == (off, True, 0)


def test_what_a_script_asks_of_the_remapper_stays(graph):
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.remapping = config.graph_options.rewrite_options.ON
    assert remapper.without_remapper(graph, config) is config
    assert remapper.without_remapper(graph, "no config") == "no config"
