"""An Estimator that is killed goes on where its last checkpoint is, and ends where an uninterrupted one ends."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.nightly
STEPS = 120
SCRIPT = """
import sys, time
import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *

rng = np.random.RandomState(0)
x, y = rng.randn(64, 8).astype(np.float32), rng.randn(64, 1).astype(np.float32)


def model_fn(features, labels, mode):
    weight = tf.get_variable("w", [8, 1], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, weight))
    manager = ExponentialUpdateLossScaleManager(init_loss_scale=2**30, incr_every_n_steps=7, decr_ratio=0.5)
    optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.05), manager)
    return NPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


class Slow(tf.train.SessionRunHook):
    def begin(self):
        self.loss = tf.losses.get_losses()[0]

    def before_run(self, _):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, _, values):
        self.last = values.results
        time.sleep(float(sys.argv[2]))


config = NPURunConfig(precision_mode="allow_mix_precision", save_checkpoints_steps=10, tf_random_seed=1)
estimator = NPUEstimator(model_fn=model_fn, config=config, model_dir=sys.argv[1])
data = lambda: tf.data.Dataset.from_tensors((x, y)).repeat()
slow = Slow()
estimator.train(data, max_steps=int(sys.argv[3]), hooks=[slow])
names = ["global_step", "w", "loss_scale", "good_steps", "bad_steps"]
values = [slow.last, *map(estimator.get_variable_value, names)]
print("end", [np.asarray(value).tobytes().hex() for value in values])
"""


def start(script, folder, pause):
    argv = [sys.executable, "-m", "npu_shim", "run", str(script), str(folder), str(pause), str(STEPS)]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)


def end(process):
    out = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0
    return [line for line in out.splitlines() if line.startswith("end ")][-1]


def test_killed_at_a_random_step(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    expected = end(start(script, tmp_path / "whole", 0))
    killed = start(script, tmp_path / "killed", 0.05)
    deadline = time.time() + 120
    while not list((tmp_path / "killed").glob("model.ckpt-*.index")) and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(random.Random(os.getpid()).uniform(0, 3))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert killed.returncode == -signal.SIGKILL  # it had not finished by itself
    assert end(start(script, tmp_path / "killed", 0)) == expected
