"""Sessions whose steps are interpreted (`npu_shim.step`), on every TensorFlow: 1.15 has no other way to the engine."""

import logging
import os
from dataclasses import replace

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.engine import sessions as engine
from npu_shim.estimator import iterations
from npu_shim.xla import interpreted, step_function
from npu_shim.xla.sources import Source

pytestmark = [sessions.NEEDS_ENGINE[0], pytest.mark.usefixtures("patched", "own_graph")]


def programs_of(session):
    """How many programs run steps."""
    return sum(len(known.programs) for known in vars(session)[engine.ENGINE].known.values())


def test_interpreted_steps_draw_what_the_session_draws(caplog):
    """Dropout with a seed, lengths that are fed, loops of steps, and a second run of the same random ops."""
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


def drawing_network():
    """(placeholder, losses, steps): dropout of batches of any size, noise, samples and a shuffle, with seeds."""
    tf.set_random_seed(5)
    x = tf.placeholder(tf.float32, [None, 6], "x")
    hidden = tf.layers.dense(x, 8, tf.tanh, kernel_initializer=tf.constant_initializer(0.1))
    hidden = tf.nn.dropout(hidden, rate=0.3)
    noise = tf.random_normal([4, 8], seed=2)
    noise += tf.random_gamma([4], tf.fill([8], 0.7), seed=3) + tf.random_poisson([1.5] * 8, [4], seed=6)
    picked = tf.random.categorical(tf.zeros([3, 8]), 2, seed=4)
    rows = tf.gather(tf.random_shuffle(tf.reshape(tf.range(5.0), [5, 1]), seed=9), picked[:, 0] % 5)
    first = tf.reduce_mean(tf.square(hidden - tf.reduce_mean(noise, 0))) + 0.01 * tf.reduce_sum(rows)
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 8).astype(np.float32))
    second = tf.reduce_mean(tf.square(tf.matmul(noise, w[:, None])))
    optimizer = tf.train.AdamOptimizer(0.02)
    return x, [first, second], [optimizer.minimize(loss) for loss in (first, second)]


@sessions.unless_in_worker
def test_one_counter_for_each_random_op_in_session_and_steps(caplog, tmp_path):
    """Steps that share a random op, steps and evaluations that the session runs, and a checkpoint in the middle."""
    x, losses, (train, other) = drawing_network()
    saver, rng = tf.train.Saver(), np.random.RandomState(0)
    data = rng.randn(20, 3, 6)

    def trained(kind):
        seen, path = [], os.path.join(str(tmp_path), kind)
        session = sessions.opened(kind)
        for number, batch in enumerate(data):
            whole = tf.RunOptions(timeout_in_ms=100000) if number in (0, 7) else None  # such a run is the session's
            seen.append(session.run([losses[0], train], {x: batch}, whole)[0])
            if number % 3 == 2:
                seen.append(session.run([losses[1], other])[0])
            if number in (3, 4, 12):
                seen += session.run(losses, {x: batch})
            if number == 9:
                saver.save(session, path)
                session.close()
                session = sessions.opened(kind)
                saver.restore(session, path)
        with session:
            return seen, session.run(tf.trainable_variables()), session

    wanted, plain, _ = trained("session")
    with caplog.at_level(logging.INFO, "npu_shim"):
        actual, variables, session = trained("pjrt")
    np.testing.assert_allclose(actual, wanted, rtol=1e-6)
    sessions.assert_close(variables, plain, rtol=1e-5, atol=1e-6)
    assert programs_of(session) == 2  # both steps
    assert "converted by TensorFlow" not in caplog.text


def test_a_run_that_fetches_less_draws_no_more():
    """A sample of an earlier run is not drawn by later ones that leave it out."""
    w = tf.get_variable("w", initializer=np.eye(3, dtype=np.float32))
    sample = tf.random.categorical(tf.zeros([2, 9]), 6, seed=4)
    loss = tf.reduce_sum(tf.square(tf.matmul(w, w) - tf.random_uniform([3, 3], seed=2)))
    train, seen = tf.train.GradientDescentOptimizer(0.01).minimize(loss), {}
    for kind in ("session", "pjrt"):
        with sessions.opened(kind) as session:
            seen[kind] = [session.run([*more, loss, train])[:-1] for more in ([sample], [], [], [sample])]
    for one, other in zip(seen["pjrt"], seen["session"]):
        sessions.assert_close(one, other, 1e-6)


def test_what_is_fetched_has_the_rows_that_data_say(caplog):
    """Of a step of the engine and of a compiled one."""
    x = tf.placeholder(tf.float32, [None, 3], "x")
    w = tf.get_variable("w", initializer=np.eye(3, dtype=np.float32))
    rows = tf.boolean_mask(tf.matmul(x, w), tf.reduce_sum(x, 1) > 0)
    with tf.control_dependencies([rows]):
        counter = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(rows - 1)))
    fetches = [rows, tf.unique(tf.cast(rows[:, 0], tf.int32))[0], counter, train]
    data = [np.random.RandomState(seed).randn(6, 3) for seed in range(3)]
    seen = {}
    for kind in ("session", "pjrt"):
        with sessions.opened(kind) as session, caplog.at_level(logging.INFO, "npu_shim"):
            seen[kind] = [session.run(fetches, {x: batch})[:3] for batch in data]
            step = npu_shim.compile_step(session, fetches[:2], [x], engine="pjrt") if kind == "pjrt" else None
            seen["compiled"] = [step({x: batch}) for batch in data] if step else []
            seen["after"] = [session.run(fetches[:2], {x: batch}) for batch in data]
    for one, other in zip((*seen["pjrt"], *seen["compiled"]), (*seen["session"], *seen["after"])):
        for got, wanted in zip(one, other):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
    assert programs_of(session) == 1
    assert "converted by TensorFlow" not in caplog.text


@sessions.unless_in_worker
def test_compile_step_on_every_tensorflow(tmp_path):
    """Its losses beside a session's, and its state in a checkpoint that a plain session restores."""
    x, losses, (train, _) = drawing_network()
    rng, saver, path = np.random.RandomState(0), tf.train.Saver(), os.path.join(str(tmp_path), "model")
    data = rng.randn(4, 3, 6)
    with sessions.started() as session:
        step = npu_shim.compile_step(session, [losses[0], train], [x], engine="pjrt")
        pairs = [(step({x: batch})[0], session.run([losses[0], train], {x: batch})[0]) for batch in data]
        wanted = session.run(tf.trainable_variables())
    np.testing.assert_allclose(*zip(*pairs), rtol=1e-6)
    step.save(path)
    with tf.Session() as session:
        saver.restore(session, path)
        sessions.assert_close(session.run(tf.trainable_variables()), wanted, rtol=1e-5, atol=1e-6)


def test_attention_and_what_is_computed_again_are_looked_for_on_every_tensorflow():
    """TensorFlow 1.15 tells the sizes of a graph's tensors too."""
    x = tf.placeholder(tf.float32, [None, 8, 16], "x")
    kernel = tf.get_variable("kernel", [16, 16], initializer=tf.ones_initializer())
    query = tf.reshape(tf.matmul(tf.reshape(x, [-1, 16]), kernel), [-1, 8, 16])
    mixed = tf.matmul(tf.nn.dropout(tf.nn.softmax(tf.matmul(query, x, transpose_b=True)), rate=0.1), x)
    wide = tf.matmul(tf.reshape(mixed, [-1, 16]), kernel)
    wide = wide * 0.5 * (1.0 + tf.tanh(0.8 * (wide + 0.04 * wide * wide * wide)))
    loss = tf.reduce_mean(tf.square(tf.matmul(wide, kernel) - 1.0))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    source, shapes = Source.of(tf.get_default_graph()), {x: [4, 8, 16]}
    prepared = step_function.prepare(source, [loss, train], shapes, device="GPU")
    step = interpreted.of(replace(prepared, manner=replace(prepared.manner, has_kernels=True)), [(4, 8, 16)])
    assert [taken.shape for taken in step.attention.taken] == [(4, 1, 8, 8)]
    assert step.recomputation.chains
    assert b"NpuShimDropoutSeed" in step.content


def test_a_tensor_inside_the_graph_is_fetched_as_it_is_fed(caplog):
    """What it would be computed of is no part of the step: it is text."""
    _, second = tf.split(tf.strings.to_number(tf.constant(["1", "2", "3", "4"])), 2)
    with caplog.at_level(logging.INFO, "npu_shim"):
        step = npu_shim.compile_step(tf.get_default_graph(), [second + 1.0, second], [second], engine="pjrt")
        more, itself = step({second: [10.0, 20.0]})
    assert more.tolist() == [11.0, 21.0]
    assert itself.tolist() == [10.0, 20.0]
    assert "converted by TensorFlow" not in caplog.text
