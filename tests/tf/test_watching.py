"""npu_shim_watch: scalars in the summaries that a script writes, and the same numbers with and without them."""

import collections

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, LossScaleOptimizer

Fetched = collections.namedtuple("Fetched", "train merged")
X = np.random.RandomState(0).uniform(-1, 1, (6, 4)).astype(np.float32)


def model(scale=2.0**10):
    x = tf.placeholder(tf.float32, [None, 4], "x")
    hidden = x
    for scope in ("first", "second"):
        with tf.variable_scope(scope):
            w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(np.eye(4) * 0.5))
            hidden = tf.matmul(hidden, w)
    loss = tf.reduce_mean(tf.square(hidden - 1.0))
    manager = ExponentialUpdateLossScaleManager(scale, 100, 1, 2, 0.5)
    optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
    gradients = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(gradients, tf.train.get_or_create_global_step())
    tf.summary.scalar("loss", loss)
    norm = tf.global_norm([gradient for gradient, _ in gradients])
    return train, loss, norm


def config(**options):
    return sessions.config(precision_mode="allow_mix_precision", **options)


def scalars(path):
    """{tag: {step: value}} of the event files in a folder."""
    found = collections.defaultdict(dict)
    for file in sorted(path.glob("events.*")):
        for event in tf.train.summary_iterator(str(file)):
            for value in event.summary.value:
                found[value.tag][event.step] = value.simple_value
    return found


def test_a_monitored_session_writes_the_scalars_and_trains_the_same(patched, tmp_path):
    losses, written = {}, {}
    for watch in (False, True):
        with tf.Graph().as_default():
            train, loss, norm = model()
            folder = tmp_path / str(watch)
            hooks = [tf.train.SummarySaverHook(save_steps=1, output_dir=str(folder), summary_op=tf.summary.merge_all())]
            creator = tf.train.ChiefSessionCreator(config=config(npu_shim_watch=watch))
            with tf.train.MonitoredSession(creator, hooks) as session:
                runs = [session.run([train, loss, norm], {"x:0": X}) for _ in range(4)]
            losses[watch], written[watch] = [run[1:] for run in runs], scalars(folder)
    assert losses[True] == losses[False]
    assert set(written[False]) == {"loss"}
    shares = {"npu_shim/overflow_share/first", "npu_shim/overflow_share/second"}
    assert set(written[True]) - {"loss"} == {
        "npu_shim/loss_scale", "npu_shim/skipped_steps", "npu_shim/gradient_norm", *shares
    }  # fmt: skip
    assert all(len(values) == 4 for values in written[True].values())
    assert set(written[True]["npu_shim/loss_scale"].values()) == {2.0**10}
    norms = [written[True]["npu_shim/gradient_norm"][step] for step in sorted(written[True]["loss"])]
    np.testing.assert_allclose(norms, [run[1] for run in losses[True]], rtol=1e-6)
    assert {value for tag in shares for value in written[True][tag].values()} == {0.0}


@pytest.mark.parametrize("nest", [
    lambda train, merged: [train, merged], lambda train, merged: (train, [merged, {"also": merged}]),
    lambda train, merged: Fetched(train, merged), lambda train, merged: {"merged": merged.name, "train": train},
])  # fmt: skip
def test_an_overflow_is_told_by_scope_whatever_the_form_of_the_fetches(patched, nest):
    with tf.Graph().as_default():
        train, _, _ = model(2.0**30)
        merged = tf.summary.merge_all()
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            fetches = nest(train, merged)
            result = session.run(fetches, {"x:0": X})
        assert type(result) is type(fetches)
        found = [each for each in tf.nest.flatten(result) if each is not None]
        for text in found:
            values = {value.tag: value.simple_value for value in tf.Summary.FromString(text).value}
            assert values["npu_shim/overflow_share/second"] > 0.5
            assert not np.isfinite(values["npu_shim/gradient_norm"])
        assert found


def test_runs_without_summaries_and_runs_that_train_nothing(patched):
    with tf.Graph().as_default() as graph:
        train, loss, _ = model()
        merged = tf.summary.merge_all()
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            count = len(graph.get_operations())
            session.run([train, loss], {"x:0": X})
            assert len(graph.get_operations()) == count
            text = session.run(merged, {"x:0": X})
    tags = {value.tag for value in tf.Summary.FromString(text).value}
    assert tags == {"loss", "npu_shim/loss_scale", "npu_shim/skipped_steps"}
