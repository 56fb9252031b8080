"""Sessions whose training steps run in a worker: what they have when it dies, waits, or has no memory."""

import logging
import os
import random
import resource
import signal
import sys
import threading
import time

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from other_processes import stop

from npu_shim.engine import sessions as engine
from npu_shim.engine.device.worker import memory, remote, starting
from npu_shim.options import engine as options

TRIALS = 20 if os.environ.get("NPU_SHIM_NIGHTLY") else 2
PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none"),
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later"),
]
A, B = np.random.RandomState(0).randn(8, 6).astype(np.float32), np.arange(8, dtype=np.int32) % 2


@pytest.fixture(autouse=True)
def in_a_worker(patched, own_graph, monkeypatch):
    monkeypatch.setattr(engine, "open_device", lambda values: remote.Worker(PYTHON))


def built():
    """(placeholders, loss, operation that trains, global step)."""
    x, y = tf.placeholder(tf.float32, [None, 6], "x"), tf.placeholder(tf.int32, [None], "y")
    hidden = tf.nn.tanh(tf.matmul(x, tf.get_variable("one", [6, 16])))
    logits = tf.matmul(hidden, tf.get_variable("two", [16, 2]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.get_or_create_global_step()
    return x, y, loss, tf.train.AdamOptimizer(0.01).minimize(loss, step), step


def device_of(session):
    return vars(session)[engine.ENGINE].device


def of_plain_session(train, feeds, steps):
    """The variables' values after so many steps of TensorFlow's own."""
    with sessions.opened("session") as session:
        for _ in range(steps):
            session.run(train, feeds)
        return session.run(tf.global_variables())


def until_it_fails(session, asked, feeds):
    """Trains until a run fails; returns its error and how many were fine."""
    for returned in range(10**6):
        try:
            session.run(asked, feeds)
        except tf.errors.InternalError as error:
            return error, returned
    raise AssertionError("the worker lives")


@pytest.mark.by_day("a loss is fetched")
@pytest.mark.parametrize("fetched", [True, False], ids=["a loss is fetched", "nothing is fetched"])
def test_a_worker_killed_at_a_random_step_leaves_the_state_of_the_last_completed_one(fetched):
    x, y, loss, train, step = built()
    feeds, asked = {x: A, y: B}, [loss, train] if fetched else train
    moments = random.Random(1)
    for trial in range(TRIALS):
        with sessions.opened() as session:
            session.run(asked, feeds)
            worker = device_of(session).started.pid
            killer = threading.Timer(moments.uniform(0, 0.05), os.kill, [worker, signal.SIGKILL])
            killer.start()
            error, returned = until_it_fails(session, asked, feeds)
            assert "killed by signal 9" in str(error)
            assert "the state of the last completed step" in str(error)
            returned += 1
            actual, values = session.run(step), session.run(tf.global_variables())
            # a run that fetches nothing returns while its step is on its way, and what it began may be lost
            assert actual == returned if fetched else actual in (returned - 1, returned)
            session.run(train, feeds)  # by TensorFlow from now on
            assert session.run(step) == actual + 1
            killer.join()
        if not trial:
            for value, wanted in zip(values, of_plain_session(train, feeds, actual)):
                np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=1e-4)


def test_a_worker_that_dies_between_steps_loses_nothing():
    x, y, loss, train, step = built()
    with sessions.opened() as session:
        for _ in range(3):
            session.run([loss, train], {x: A, y: B})
        os.kill(device_of(session).started.pid, signal.SIGKILL)
        assert session.run(step) == 3  # the worker is not asked
        with pytest.raises(tf.errors.InternalError, match="the state of the last completed step"):
            session.run([loss, train], {x: A, y: B})
        assert session.run([step, train], {x: A, y: B})[0] in (3, 4)
        assert session.run(step) == 4


def test_a_worker_that_dies_while_it_compiles_is_a_warning(caplog):
    x, y, loss, train, step = built()
    logging.getLogger("npu_shim").propagate = True
    with sessions.opened() as session:
        session.run([loss, train], {x: A, y: B})
        device = device_of(session)
        real = device.load

        def load(*arguments):
            os.kill(device.started.pid, signal.SIGKILL)
            return real(*arguments)

        device.load = load
        with caplog.at_level(logging.WARNING, "npu_shim"):
            session.run([loss, train], {x: A[:4], y: B[:4]})
        assert session.run(step) == 2
    assert "compiling a step failed on cpu, in a worker" in caplog.text


def test_a_large_state_is_kept_now_and_then_and_the_error_says_how_far_back_it_is():
    """40 MB take so long to copy that the next steps are not kept."""
    large = tf.get_variable("large", [1000, 10_000], initializer=tf.ones_initializer())
    x, step = tf.placeholder(tf.float32, [None, 10_000]), tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, large[:, :8], transpose_a=True) - tf.cast(step, tf.float32)))
    train = tf.group(large.assign_add(0 * loss + tf.ones_like(large)), tf.assign_add(step, 1))
    feeds = {x: np.ones([1000, 10_000], np.float32)}
    with sessions.opened() as session:
        device, trained = None, 0
        while not trained or not device._behind:
            session.run([train, loss], feeds)
            device, trained = device_of(session), trained + 1
        behind = device._behind
        assert session.run(step) == trained  # the session has a newer value than what is kept
        os.kill(device.started.pid, signal.SIGKILL)
        with pytest.raises(tf.errors.InternalError, match="state of %d steps before the last completed one" % behind):
            session.run([train, loss], feeds)
        assert session.run(step) == trained - behind
        assert (session.run(large) == 1 + trained - behind).all()


SIZES = 8, 200, 6, 8, 6, 200  # of batches; the second needs another block of memory than the first


def trained(kind, fails=None, at=None):
    """The variables after a step on each of SIZES, and what the worker was asked; message `at` fails, if any does."""
    x, y, loss, train, _ = built()
    real, asked = remote.Worker._send, []

    def send(device, then, message, data=b"", blocks=()):
        asked.append(message["do"])
        if len(asked) - 1 == at and fails == "killed":
            os.kill(device.started.pid, signal.SIGKILL)
        elif len(asked) - 1 == at:
            message, data = (message, b"no program") if data else ({**message, "do": "nothing"}, data)
        return real(device, then, message, data, blocks)

    with pytest.MonkeyPatch.context() as patch, sessions.opened(kind) as session:
        patch.setattr(remote.Worker, "_send", send)
        for size in SIZES:
            feeds = {x: np.resize(A, [size, 6]), y: np.resize(B, size)}
            try:
                session.run([loss, train], feeds)
            except tf.errors.InternalError:
                session.run([loss, train], feeds)  # by TensorFlow, from the last completed step
        return session.run(tf.global_variables()), asked


@pytest.mark.parametrize("fails", ["refused", pytest.param("killed", marks=pytest.mark.nightly)])
def test_whatever_message_fails_the_variables_are_those_of_tensorflow(fails):
    """Regression: after a program that XLA refused, steps took their feeds from memory that nobody had filled."""

    def of(*arguments):
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            return trained(*arguments)

    expected, asked = of("session")[0], of("pjrt")[1]
    loads = [number for number, what in enumerate(asked) if what == "load"]
    every = range(len(asked)) if os.environ.get("NPU_SHIM_NIGHTLY") else loads[1:2]
    assert len(loads) == 3
    for number in every:
        for value, wanted in zip(of("pjrt", fails, number)[0], expected):
            np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=1e-4, err_msg=asked[number])


@pytest.mark.parametrize("when", ["before", "while a later session connects"])
def test_a_later_session_has_a_new_worker_whenever_the_first_ends(when, monkeypatch):
    """Regression: a process that was killed is there until it is waited for, and the later session's run failed."""
    if when != "before":
        monkeypatch.setattr(starting.Started, "usable", property(lambda started: started._running.returncode is None))
    x, y, loss, train, step = built()
    with sessions.opened() as session:
        session.run([loss, train], {x: A, y: B})
        dead = device_of(session).started.pid
        os.kill(dead, signal.SIGKILL)
    with sessions.opened() as session:
        session.run([loss, train], {x: A, y: B})
        assert device_of(session).started.pid != dead
        assert session.run(step) == 1


def test_a_device_that_nobody_expects_to_fail_leaves_the_step_to_the_session(monkeypatch, caplog):
    """Regression: the session's run failed with what JAX had raised."""

    def broken(values):
        raise RuntimeError("no backend")

    logging.getLogger("npu_shim").propagate = True
    monkeypatch.setattr(engine, "open_device", broken)
    x, y, loss, train, step = built()
    with sessions.opened() as session, caplog.at_level(logging.WARNING, "npu_shim"):
        session.run([loss, train], {x: A, y: B})
        assert session.run(step) == 1
    assert "runs in the session: RuntimeError: no backend" in caplog.text


def test_a_worker_that_cannot_be_had_is_an_error_if_asked_for_by_name(monkeypatch, caplog):
    logging.getLogger("npu_shim").propagate = True
    monkeypatch.setattr(engine, "open_device", lambda values: remote.Worker("/no/python"))
    x, y, _, train, step = built()
    with sessions.opened() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"engine 'pjrt' is not available: .*'/no/python'"):
            session.run(train, {x: A, y: B})
        assert session.run(step) == 0
    monkeypatch.setattr(options, "asked", lambda values: "auto")
    monkeypatch.setattr(options, "_sees_gpu", lambda: True)
    with sessions.opened() as session, caplog.at_level(logging.INFO, "npu_shim"):
        for _ in range(2):
            session.run(train, {x: A, y: B})
        assert session.run(step) == 2
    assert caplog.text.count("'/no/python' cannot be run") == 1


def test_tensorflow_leaves_a_gpu_s_memory_to_the_programs():
    for kind in ("pjrt", "session"):
        with sessions.opened(kind) as session:
            assert session._config.gpu_options.allow_growth == (kind == "pjrt")


def test_ctrl_c_in_a_step_loses_no_state():
    x, y, loss, train, step = built()
    with sessions.opened() as session:
        session.run([loss, train], {x: A, y: B})
        for number in range(2, TRIALS + 2):
            worker = device_of(session).started.pid
            stop(worker)
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                session.run([loss, train], {x: A, y: B})
            os.kill(worker, signal.SIGCONT)
            assert session.run(step) == number  # the step was on its way, and is whole
        session.run([loss, train], {x: A, y: B})
        assert session.run(step) == TRIALS + 2


def test_without_shared_memory_the_session_runs_the_step(caplog):
    x, y, loss, train, step = built()
    logging.getLogger("npu_shim").propagate = True
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with sessions.opened() as session:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            with caplog.at_level(logging.INFO, "npu_shim"):
                session.run([loss, train], {x: np.repeat(A, 100, 0), y: np.repeat(B, 100)})
                session.run([loss, train], {x: np.repeat(A, 100, 0), y: np.repeat(B, 100)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert session.run(step) == 2
    assert caplog.text.count("runs in the session: 0.0 MB of shared memory is not available: File too large") == 1


def test_variables_without_shared_memory_stay_in_the_session(monkeypatch, caplog):
    x, y, loss, train, step = built()
    logging.getLogger("npu_shim").propagate = True
    real = memory.Block.of

    def full(size):
        if size > 3000:
            raise memory.NoRoom("%d bytes of shared memory is not available" % size)
        return real(size)

    monkeypatch.setattr(memory.Block, "of", full)
    with sessions.opened() as session, caplog.at_level(logging.INFO, "npu_shim"):
        for _ in range(2):
            session.run([loss, train], {x: A, y: B})
        assert session.run(step) == 2
    assert caplog.text.count("bytes of shared memory is not available") == 1


def test_two_sessions_train_in_two_threads():
    x, y, loss, train, step = built()
    opened_ones = [sessions.opened() for _ in range(2)]
    problems = []

    def trains(session, steps):
        try:
            for _ in range(steps):
                session.run([loss, train], {x: A, y: B})
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=trains, args=arguments) for arguments in zip(opened_ones, (40, 25))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert [session.run(step) for session in opened_ones] == [40, 25]
    first, second = opened_ones
    assert device_of(first).started is device_of(second).started
    started = device_of(first).started
    first.close()
    second.run([loss, train], {x: A, y: B})
    assert second.run(step) == 26
    second.close()
    assert started.usable  # it waits for the next session


def test_a_forked_child_of_the_script_leaves_the_worker_alone():
    x, y, loss, train, step = built()
    with sessions.opened() as session:
        session.run([loss, train], {x: A, y: B})
        child = os.fork()
        if not child:
            device_of(session).close()
            device_of(session).started.end()
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.1)
        session.run([loss, train], {x: A, y: B})
        assert session.run(step) == 2
