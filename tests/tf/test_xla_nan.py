"""NaN in maxima and minima stays NaN where XLA computes them on a CPU. A process for all flags: XLA reads them once."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15's XLA has no such flag")
SCRIPT = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
import npu_shim
tf.disable_eager_execution()
npu_shim.patch()
values = np.array([[1, np.nan, 2, 0]], "f")
x = tf.placeholder(tf.float32, [1, 4], "x")
y = x + 1 - 1
for _ in range(4):  # a cluster has eight ops
    y = tf.exp(tf.log(y + 1)) - 1
fetches = [tf.reduce_max(y), tf.reduce_min(y), tf.clip_by_value(y, 0.5, 1.5)]
for way in sys.argv[1:]:
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add(name="NpuOptimizer")
    entry.parameter_map["npu_shim_profile"].s = b"gpu"
    entry.parameter_map["precision_mode"].s = b"must_keep_origin_dtype"
    entry.parameter_map["npu_shim_xla"].s = b"on" if way == "clusters" else b"off"
    with tf.Session(config=config) as session:
        if way == "step":
            found = npu_shim.compile_step(session, fetches, [x])({x: values})
        else:
            found = session.run(fetches, {x: values})
    print(json.dumps([np.isnan(value).tolist() for value in found]))
"""


def nans(ways, flags=""):
    environment = {**os.environ, "XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *ways], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return dict(zip(ways, map(json.loads, done.stdout.decode().splitlines())))


def test_nan_stays_where_sessions_have_it():
    wanted = [True, True, [[False, True, False, False]]]
    assert nans(["session", "step", "clusters"]) == {"session": wanted, "step": wanted, "clusters": wanted}


@pytest.mark.nightly
def test_the_users_flag_wins():
    assert nans(["clusters"], "--xla_cpu_enable_fast_min_max=true")["clusters"][0] is False
