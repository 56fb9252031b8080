"""Sessions whose steps are interpreted (`npu_shim.step`), on every TensorFlow: 1.15 has no other way to the engine."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.estimator import iterations

pytestmark = [sessions.NEEDS_ENGINE[0], pytest.mark.usefixtures("patched", "own_graph")]


def programs_of(session):
    """How many programs run steps."""
    return sum(len(known.programs) for known in vars(session)[engine.ENGINE].known.values())


def test_interpreted_steps_draw_what_the_session_draws(monkeypatch, caplog):
    """Dropout with a seed, lengths that are fed, loops of steps, and a second run of the same random ops."""
    monkeypatch.setenv("NPU_SHIM_STEP", "jax")
    x, lengths = tf.placeholder(tf.float32, [3, 5, 4], "x"), tf.placeholder(tf.int32, [3], "n")
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(6), x, lengths, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(outputs, rate=0.4, seed=3) - 1))
    step = tf.train.get_or_create_global_step()
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step)
    rng = np.random.RandomState(0)
    data = [{x: rng.randn(3, 5, 4), lengths: n} for n in ([5, 2, 1], [4, 4, 1], [1, 5, 3])]

    def trained(kind):
        with sessions.opened(kind) as session:
            losses = [session.run([loss, train], batch)[0] for batch in data]
            looped = iterations.set_iteration_per_loop(session, train, 2)
            session.run(looped, data[1])
            losses += [session.run([loss, train], data[0])[0]]
            return losses, session.run(step), session.run(tf.global_variables()), session

    wanted = trained("session")
    with caplog.at_level(logging.INFO, "npu_shim"):
        actual = trained("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=1e-6)
    assert actual[1] == wanted[1] == 6
    sessions.assert_close(actual[2], wanted[2], rtol=1e-5, atol=1e-6)
    assert programs_of(actual[3]) == 2  # a step and a loop of steps: lengths need none of their own
    assert "converted by TensorFlow" not in caplog.text
