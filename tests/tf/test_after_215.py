"""Estimator and Keras 2 on a TensorFlow that comes without them, and the errors where they are not installed."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat import after_215

LATER = tuple(map(int, tf.__version__.split(".")[:2])) > (2, 15)
later = pytest.mark.skipif(not LATER, reason="this TensorFlow, %s, comes with Estimator" % tf.__version__)


@pytest.mark.skipif(LATER, reason="this TensorFlow, %s, comes without Estimator" % tf.__version__)
def test_nothing_is_changed_where_tensorflow_has_it():
    before = tf.estimator
    after_215.restore(tf)
    assert tf.estimator is before
    assert after_215.MOVED == {}


def run(source, **environment):
    script = "import os\n" + source
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode()


WITHOUT = """
import sys
sys.modules["tensorflow_estimator"] = None
import tensorflow.compat.v1 as tf
from npu_bridge.npu_init import *
assert not hasattr(tf, "estimator")
with tf.Session() as session:
    print("ran", session.run(tf.constant(2) * 3))
NPURunConfig(precision_mode="allow_mix_precision")
"""


@later
def test_without_the_package_sessions_run_and_the_config_says_what_to_install():
    status, output = run(WITHOUT)
    assert status == 1
    assert "ran 6" in output
    assert "npu_shim: NPURunConfig: TensorFlow %s comes without Estimator" % tf.__version__ in output
    assert "pip install tensorflow-estimator==2.15.0 tf_keras" in output


@later
def test_keras_stays_the_users_choice():
    source = "from npu_bridge.npu_init import *\nprint('tf.keras is', tf.keras.layers.Dense.__module__.split('.')[0])"
    assert "tf.keras is tf_keras" in run(source)[1]
    assert "tf.keras is keras" in run(source, TF_USE_LEGACY_KERAS="0")[1]


CLUSTER = {
    "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
    "task": {"type": "worker", "index": 1},
}


@later
def test_a_run_config_knows_its_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    config = tf.estimator.RunConfig()
    assert (config.task_type, config.task_id, config.num_worker_replicas, config.num_ps_replicas) == ("worker", 1, 3, 1)
    assert (config.is_chief, config.global_id_in_cluster) == (False, 2)


@later
def test_a_strategy_trains_in_one_process_and_is_refused_in_a_cluster(monkeypatch, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    config = tf.estimator.RunConfig(train_distribute=strategy, model_dir=str(tmp_path))
    assert config.train_distribute is strategy
    assert config.is_chief
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    with pytest.raises(ValueError, match=r"the distribute coordinator, which TensorFlow 2\.15 was"):
        tf.estimator.RunConfig(train_distribute=strategy)


@later
def test_names_of_tpus_say_that_they_are_gone():
    parameters = after_215._Tpu("tensorflow.python.tpu.tpu_embedding").AdamParameters
    with pytest.raises(NotImplementedError, match="AdamParameters was last in TensorFlow 2"):
        parameters(0.1)
    config = tf.estimator.tpu.RunConfig(tpu_config=tf.estimator.tpu.TPUConfig(iterations_per_loop=5))
    assert config.tpu_config.iterations_per_loop == 5
