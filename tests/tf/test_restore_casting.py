"""Unmodified scripts restore checkpoints of another float dtype, and from before a loss scale."""

import logging

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import restoring


@pytest.fixture
def casting():
    restoring.install()
    yield
    restoring.uninstall()


def saved(folder, dtype, names=("w", "beta1_power"), partitioner=None):
    with tf.Graph().as_default(), tf.Session() as session:
        for name in names:
            tf.get_variable(name, [4], dtype, tf.constant_initializer(0.5), partitioner=partitioner)
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(folder / ("model_" + dtype.name)))


def test_three_dtypes_restore_into_each_other_by_every_way_of_a_script(casting, tmp_path):
    parts = tf.fixed_size_partitioner(2)
    for stored in (tf.float32, tf.float16, tf.bfloat16):
        (tmp_path / stored.name).mkdir()
        path = saved(tmp_path / stored.name, stored)
        for dtype in (tf.float32, tf.float16, tf.bfloat16):
            with tf.Graph().as_default():
                w = tf.get_variable("w", [4], dtype, tf.zeros_initializer())
                b = tf.get_variable("beta1_power", [4], dtype, tf.zeros_initializer(), partitioner=parts)
                saver = tf.train.Saver()
                with tf.Session() as session:
                    saver.restore(session, path)
                    assert session.run([w, b.as_tensor()])[0].astype(np.float32).tolist() == [0.5] * 4
            with tf.Graph().as_default():
                w = tf.get_variable("w", [4], dtype, tf.zeros_initializer())
                tf.train.init_from_checkpoint(path, {"w": w})
                with tf.Session() as session:
                    session.run(tf.global_variables_initializer())
                    assert session.run(w).astype(np.float32).tolist() == [0.5] * 4
        with tf.Graph().as_default():
            w = tf.get_variable("w", [4], tf.float16, tf.zeros_initializer())
            creator = tf.train.ChiefSessionCreator(checkpoint_dir=str(tmp_path / stored.name))
            with tf.train.MonitoredSession(creator) as session:
                assert session.run(w).astype(np.float32).tolist() == [0.5] * 4


def test_what_a_loss_scale_has_added_keeps_its_initial_value_and_nothing_else(casting, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    path = saved(tmp_path, tf.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", [4], tf.float16, tf.zeros_initializer())
        names = ["cond_1/beta1_power", "loss_scale", "w/float32_master", "w/float32_master/Adam"]
        added = [tf.get_variable(name, [], initializer=tf.constant_initializer(3.0)) for name in names]
        tf.train.Saver().restore(session, path)
        assert session.run(w).tolist() == [0.5] * 4
        assert session.run(added) == [3.0] * 4
        [line] = [text for text in caplog.messages if "have added" in text]
        assert "lacks 'cond_1/beta1_power' and 3 more" in line
        tf.get_variable("conditional/weight", [4])
        with pytest.raises(tf.errors.NotFoundError, match="conditional/weight"):
            tf.train.Saver().restore(session, path)


def test_without_it_a_saver_is_tensorflow_s(tmp_path):
    path = saved(tmp_path, tf.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("w", [4], tf.float16)
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not equal original dtype"):
            tf.train.Saver().restore(session, path)
