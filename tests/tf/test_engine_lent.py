"""Large feeds that a program on CPUs reads where they are: its run waits for its end, and nothing is copied."""

import os
import signal

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed beside TensorFlow")

from npu_shim.engine.device import feeding, programs  # noqa: E402
from npu_shim.engine.sessions import ENGINE  # noqa: E402

pytestmark = pytest.mark.usefixtures("patched", "own_graph")
ROWS = np.random.RandomState(5).rand(90_000, 6).astype("f")


def step(x):
    """(loss, update) of a small network."""
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [6, 8], initializer=tf.initializers.glorot_normal(seed=4), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1))
    return loss, tf.train.GradientDescentOptimizer(0.001).minimize(loss)


def session_of(engine="pjrt"):
    options = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu", "npu_shim_engine": engine}
    return tf.Session(config=sessions.config(**options))


def placed(rows, offset):
    """A copy of an array that begins so many bytes behind a multiple of 64, as a CPU's programs take it for 0."""
    memory = np.zeros(rows.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    copy = memory[begin : begin + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    copy[...] = rows
    return copy


def test_a_cpus_program_reads_large_arrays_where_they_are_and_its_run_waits_for_it(monkeypatch):
    rows = ROWS
    given = tf.placeholder(tf.float32, rows.shape)
    loss, train = step(given)
    last = tf.get_variable("last", rows.shape, use_resource=True)
    train = tf.group(train, tf.assign(last, given))
    copied, plain = [], feeding.arrays.copy
    monkeypatch.setattr(feeding.arrays, "copy", lambda value, *of: copied.append(value.nbytes) or plain(value, *of))
    seen = {}
    for engine in ("session", "pjrt"):
        with session_of(engine) as session:
            session.run(tf.global_variables_initializer())
            seen[engine] = []
            for fetches, offset in (([loss, train], 0), ([loss, train], 16), (train, 0), ([loss, train], 0)):
                fed = placed(rows, offset)
                fed.flags.writeable = offset == 0
                session.run(fetches, {given: fed})
                fed.flags.writeable = True
                if engine == "pjrt":  # TensorFlow's own variable shares the array, and would follow it
                    fed[...] = np.nan  # it is the script's again
                seen[engine].append(session.run(tf.global_variables()))
    for one, other in zip(seen["pjrt"], seen["session"]):
        for mine, theirs in zip(one, other):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    assert copied == [rows.nbytes] * 2  # what begins elsewhere, and what a run that does not wait is fed


def test_ctrl_c_comes_behind_a_step_that_reads_the_scripts_own_array(monkeypatch):
    rows = placed(ROWS, 0)
    given = tf.placeholder(tf.float32, rows.shape)
    loss, train = step(given)
    run_placed = programs.InProcess.run_placed

    def interrupted(self, *of):
        results = run_placed(self, *of)
        os.kill(os.getpid(), signal.SIGINT)
        return results

    with session_of() as session:
        session.run(tf.global_variables_initializer())
        session.run([loss, train], {given: rows})
        monkeypatch.setattr(programs.InProcess, "run_placed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run([loss, train], {given: rows})
        assert getattr(session, ENGINE).device._pending is None  # nothing reads the array any more
        monkeypatch.undo()
        assert np.isfinite(session.run([loss, train], {given: rows})[0])


@pytest.mark.parametrize("dtype", ["float64", "uint8", ">f4"])
def test_a_large_feed_of_another_dtype_is_gone_through_once(monkeypatch, dtype):
    rows = (ROWS * 9).astype(dtype)
    copied, plain = [], feeding.arrays.copy
    monkeypatch.setattr(feeding.arrays, "copy", lambda of, *to: copied.append(of.value.dtype) or plain(of, *to))
    losses = {}
    for engine in ("session", "pjrt"):
        with tf.Graph().as_default():
            given = tf.placeholder(tf.float32, [None, 6])
            loss, train = step(given)
            with session_of(engine) as session:
                session.run(tf.global_variables_initializer())
                losses[engine] = [session.run([loss, train], {given: rows})[0] for _ in range(2)]
    np.testing.assert_allclose(losses["pjrt"], losses["session"], rtol=1e-4)
    assert copied == [rows.dtype] * 2


@pytest.mark.parametrize("fetches", [True, False], ids=["results are fetched", "nothing is fetched"])
@pytest.mark.parametrize("count", [0, 1])
def test_what_an_iterator_reads_is_not_copied_for_a_run_that_waits(monkeypatch, fetches, count):
    monkeypatch.setenv("NPU_SHIM_PREFETCH", str(count))
    copied, plain = [], feeding.arrays.copy
    monkeypatch.setattr(feeding.arrays, "copy", lambda value, *of: copied.append(value.nbytes) or plain(value, *of))
    values = {}
    for engine in ("session", "pjrt"):
        with tf.Graph().as_default():
            data = tf.data.Dataset.range(4).map(lambda n: tf.cast(n, tf.float32) + tf.constant(ROWS))
            loss, train = step(tf.data.make_one_shot_iterator(data).get_next())
            with session_of(engine) as session:
                session.run(tf.global_variables_initializer())
                for _ in range(3):
                    session.run([loss, train] if fetches else train)
                values[engine] = session.run(tf.trainable_variables())
    np.testing.assert_allclose(values["pjrt"], values["session"], rtol=1e-4)
    assert len(copied) >= 3 * (not fetches)
    assert not (fetches and copied)
