"""Sessions that never asked for NpuOptimizer run as if it were not there, beside those that did."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np, tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
from npu_shim.session.interception import patch

def clusters(config):
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [4, 4])
        y, metadata = tf.exp(tf.tanh(x)) * tf.sin(x) + 1, tf.RunMetadata()
        session.run(y, {x: np.ones([4, 4])}, tf.RunOptions(output_partition_graphs=True), metadata)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    return sum(node.op in ("_XlaCompile", "XlaLaunch") for node in nodes)

def compiling():
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    return config

before = clusters(compiling())
patch.patch()
config = tf.ConfigProto()
config.graph_options.rewrite_options.custom_optimizers.add().name = "NpuOptimizer"
clusters(config)
patch.unpatch()
print("clusters", before, clusters(compiling()))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What such a script prints, on both streams."""
    script = tmp_path_factory.mktemp("foreign") / "script.py"
    script.write_text(SCRIPT)
    flags = "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=2"
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "TF_XLA_FLAGS": flags}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_small_clusters_of_a_plain_session_stay_after_a_session_with_ours(ran):
    before, after = next(line for line in ran.splitlines() if line.startswith("clusters")).split()[1:]
    assert before == after != "0"


def test_clusters_of_a_plain_session_are_not_logged_as_ours(ran):
    assert "npu_shim: XLA compiles" not in ran
