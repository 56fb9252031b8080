"""A session without a config of its own has what `tf.config` was asked for, as in TensorFlow."""

import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.bridge.ops import resources
from npu_shim.compat.behaviour import remapper
from npu_shim.distributed.job import cluster


@pytest.fixture(autouse=True)
def asked():
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    yield
    tf.config.optimizer.set_experimental_options({"constant_folding": None})


def folding(config):
    return config.graph_options.rewrite_options.constant_folding


OFF = tf.ConfigProto().graph_options.rewrite_options.OFF


@pytest.mark.parametrize("enabled", [False, True])
def test_sessions_have_it(enabled):
    npu_shim.patch()
    if enabled:
        npu_shim.enable(precision_mode="allow_mix_precision")
    with tf.Graph().as_default():
        with tf.Session() as session:
            assert folding(session._config) == OFF
        with tf.Session(config=tf.ConfigProto()) as session:
            assert folding(session._config) == 0  # a config of its own is all that it has
        with tf.train.MonitoredSession() as session:
            assert folding(session._sess._sess._sess._sess._config) == OFF


def test_an_interactive_session_has_its_own_defaults():
    npu_shim.patch()
    session = tf.InteractiveSession(graph=tf.Graph())
    assert session._config.gpu_options.allow_growth
    session.close()


def test_copies_of_a_config_have_it(monkeypatch):
    with tf.Graph().as_default() as graph:
        assert folding(remapper.without_remapper(graph, None)) == OFF

    configs = []

    class Session:
        @resources.decorator_tf_session
        def __init__(self, target="", graph=None, config=None):
            configs.append(config)

    Session()
    monkeypatch.setattr(cluster.ranks, "world_size", lambda: 2)
    monkeypatch.setattr(cluster, "_server", lambda config: Session)
    monkeypatch.setattr(Session, "target", "there", raising=False)
    configs.append(cluster.joined("", None)[1])
    assert [folding(config) for config in configs] == [OFF, OFF]
