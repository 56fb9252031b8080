"""Sizes that depend on data, and of which a program takes something for granted: else the session runs the step."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.engine.runtime import runs

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph", "control_flow_of_version_1")]
FEW, MANY = [1, -1, 1, -1, -1, -1], [1, 1, -1, 1, 1, 1]  # signs of the first column of a batch


def batch(signs, seed=0):
    x = np.abs(np.random.RandomState(seed).randn(6, 3)).astype("f") + 0.1
    x[:, 0] *= signs
    return x


def padded(x, rows):
    """Four rows, or as many as there are."""
    return tf.pad(tf.tanh(rows), [[0, tf.maximum(4 - tf.shape(rows)[0], 0)], [0, 0]])


def beside(x, rows):
    """As many rows of another tensor, or one of it with each, of which nothing is taken for granted."""
    least = tf.where(tf.size(rows) > 9, tf.reduce_max(x[:, 0]) - 1e-3, 0.0)
    return rows * tf.boolean_mask(tf.tanh(x), x[:, 0] > least)


def parted(x, rows):
    """By level; there are no rows of other levels but where one is."""
    h = tf.tanh(x)
    level = tf.cast(x[:, 0] > 0, tf.int32) + 2 * tf.cast(tf.reduce_sum(tf.sign(x[:, 0])) > 0, tf.int32)
    return tf.concat([tf.gather_nd(h, tf.where(tf.equal(level, at))) for at in (0, 1)], 0)[:, :1]


@pytest.mark.parametrize("kind", [padded, beside, parted])
def test_the_session_runs_the_steps_in_which_it_does_not_hold(kind):
    batches = [batch(FEW), batch(MANY, 1), batch(FEW, 2), batch(FEW, 3), batch(MANY, 4)]
    results = []
    x = tf.placeholder(tf.float32, [6, 3])
    w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.1))
    h = tf.matmul(x, w)
    rows = tf.boolean_mask(h, x[:, 0] > 0)
    loss = tf.reduce_sum(tf.square(kind(h if kind is parted else x, rows)))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    for way in ("session", "pjrt"):
        with sessions.opened(way) as session:
            results.append([session.run([loss, train], {x: one})[0] for one in batches] + [session.run(w)])
    sessions.assert_close(*results, rtol=1e-5, atol=1e-6)
    known = [*vars(session)[engine.ENGINE].known.values()]
    assert [one.step is not None for one in known if one.programs] == [True], [one.reason for one in known]
    assert max(one.stops for one in known) == (0 if kind is beside else 1)


def test_steps_in_a_row_are_the_sessions_then():
    x = tf.placeholder(tf.float32, [6, 3])
    w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.1))
    loss = tf.reduce_sum(padded(x, tf.boolean_mask(tf.matmul(x, w), x[:, 0] > 0)))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with sessions.opened() as session:
        for _ in range(runs.MOST_STOPS + 1):
            session.run(train, {x: batch(MANY)})
        assert runs.STOPPED in [one.reason for one in vars(session)[engine.ENGINE].known.values()]
