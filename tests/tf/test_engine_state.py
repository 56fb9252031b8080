"""State that two sides write, the session and the engine's programs: every update counts, as in TensorFlow."""

import logging
import threading
import time
from concurrent import futures

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2

import npu_shim
from npu_shim.engine import sessions as engine
from npu_shim.engine import step as engine_step
from npu_shim.engine.device import programs
from npu_shim.engine.device.worker import remote
from npu_shim.engine.partition import facts
from npu_shim.engine.runtime import loading
from npu_shim.options import engine as options
from npu_shim.session.interception import interceptors

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph")]
ONES = np.ones([8, 4], np.float32)


def known_of(session):
    """The runs that the session's engine has seen."""
    return vars(session)[engine.ENGINE].known.values()


def taken(session):
    """How many runs are steps on the device."""
    return sum(known.step is not None for known in known_of(session))


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_of_one_initial_tensor_keep_values_of_their_own(resource):
    x = tf.placeholder(tf.float32, [8, 4])
    start = tf.random_uniform([4, 2], seed=1)
    a, b = (tf.Variable(start, use_resource=resource) for _ in range(2))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, a))) + tf.reduce_mean(tf.square(tf.matmul(x, 3 * b) - 1))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

    def trained(kind):
        with sessions.opened(kind) as session:
            session.run(train, {x: ONES})
            return session.run([a, b]), kind == "session" or taken(session)

    (wanted, _), (actual, count) = trained("session"), trained("pjrt")
    np.testing.assert_allclose(actual, wanted, rtol=1e-5)
    assert count == 1
    assert np.abs(actual[0] - actual[1]).max() > 1e-3


def in_thread(function):
    """Starts a function in a thread, and returns a function that waits for its end and raises its error."""
    with_errors = futures.ThreadPoolExecutor(1)
    started = with_errors.submit(function)
    with_errors.shutdown(wait=False)
    return lambda: started.result(timeout=60)


def counted(resource=False):
    """(feed, training step, weights, global step) of a step that the engine takes."""
    x = tf.placeholder(tf.float32, [8, 4])
    with tf.variable_scope("net", use_resource=resource):
        w = tf.get_variable("w", [4, 2])
        step = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    return x, tf.train.GradientDescentOptimizer(0.001).minimize(loss, global_step=step), w, step


def test_steps_and_runs_of_the_session_count_in_one_variable():  # a frame counter
    x, train, _, step = counted()
    with tf.control_dependencies([tf.assign_add(step, 1, use_locking=True)]):
        seen = tf.py_func(lambda value: (time.sleep(0.01), value)[1], [0.0], tf.float32)
    plain = tf.assign_add(step, 1, use_locking=True)
    with sessions.opened() as session:
        session.run(train, {x: ONES})
        wait = [in_thread(lambda run=run: [session.run(run) for _ in range(40)]) for run in (seen, plain)]
        for _ in range(40):
            session.run(train, {x: ONES})
        for call in wait:
            call()
        assert session.run(step) == 121
        assert taken(session) == 1


@pytest.mark.parametrize("ends", ["well", "in an error"])
def test_what_a_run_assigns_and_steps_add_meanwhile(ends):  # 100 was left of 105
    x, train, _, step = counted()
    entered, leave = threading.Event(), threading.Event()

    def function(value):
        entered.set()
        assert leave.wait(60)
        if ends != "well":
            raise ValueError("on purpose")
        return value

    with tf.control_dependencies([tf.assign(step, 100)]):
        slow = tf.py_func(function, [0.0], tf.float32)
    with sessions.opened() as session:
        session.run(train, {x: ONES})
        wait = in_thread(lambda: session.run(slow))
        assert entered.wait(60)
        for _ in range(5):
            session.run(train, {x: ONES})
        leave.set()
        if ends == "well":
            wait()
        else:
            with pytest.raises(tf.errors.OpError, match="on purpose"):
                wait()
        assert session.run(step) == 105
        moved = vars(session)[engine.ENGINE].residency.moved["to the device"]
        session.run(train, {x: ONES})
        assert session.run(step) == 106
        assert vars(session)[engine.ENGINE].residency.moved["to the device"] > moved  # on the device again


def test_a_run_that_waits_reads_what_steps_have_written_meanwhile():
    x, train, _, step = counted(resource=True)
    entered, leave = threading.Event(), threading.Event()
    waited = tf.py_func(lambda: (entered.set(), leave.wait(60), np.float32(0))[2], [], tf.float32)
    with tf.control_dependencies([waited]):
        late = step.read_value()
    with sessions.opened() as session:
        session.run(train, {x: ONES})
        wait = in_thread(lambda: session.run(late))
        assert entered.wait(60)
        session.run(train, {x: ONES})
        session.run(train, {x: ONES})
        leave.set()
        assert wait() == 3


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_threads_add_whatever_they_run(resource):
    """Steps that are taken, one that is refused, a callable, reads, another variable's assignments: steps count."""
    x, train, w, step = counted(resource)
    other = tf.get_variable("other", [4, 2], trainable=False, use_resource=resource)
    hidden = tf.py_func(lambda value: (time.sleep(0.005), value)[1], [x], tf.float32)
    hidden.set_shape([8, 4])
    hidden = tf.raw_ops.InplaceAdd(x=hidden, i=[0], v=[[0.0] * 4])  # what the engine refuses
    refused = tf.train.GradientDescentOptimizer(0.001).minimize(
        tf.reduce_mean(tf.square(tf.matmul(tf.stop_gradient(hidden), w))), global_step=step
    )
    with sessions.opened() as session:
        session.run(train, {x: ONES})
        call = session.make_callable(train, [x])
        runs = [
            lambda: session.run(train, {x: ONES}),
            lambda: session.run(refused, {x: ONES}),
            lambda: call(ONES),
            lambda: session.run(step),
            lambda: session.run(other.initializer),
        ]
        for run in runs:
            run()
        for wait in [in_thread(lambda run=run: [run() for _ in range(20)]) for run in runs]:
            wait()
        assert session.run(step) == 64
        assert taken(session) == 1


def test_a_function_in_the_middle_of_a_step_runs_another_one():  # they waited for each other for ever
    x, inner = tf.placeholder(tf.float32, [8, 4]), []
    w = tf.get_variable("w", [4, 4])
    b = tf.get_variable("b", [4, 4])

    def step_of(variable, function):
        hidden = tf.py_func(function, [tf.matmul(x, variable)], tf.float32)
        hidden.set_shape([8, 4])
        return tf.train.GradientDescentOptimizer(0.1).minimize(
            tf.reduce_mean(tf.square(tf.matmul(tf.stop_gradient(hidden), variable))), var_list=[variable]
        )

    simple = step_of(b, lambda value: value + np.float32(1))
    nested = step_of(w, lambda value: (inner[0].run(simple, {x: ONES}), value)[1])

    def trained(kind):
        with sessions.opened(kind) as session:
            inner[:] = [session]
            in_thread(lambda: [session.run(nested, {x: ONES}) for _ in range(3)])()
            return session.run([w, b])

    wanted, actual = trained("session"), trained("pjrt")
    sessions.assert_close(actual, wanted, rtol=2e-5, atol=1e-6)


def test_a_limit_of_time_is_kept():  # a run waited for ever
    queue = tf.FIFOQueue(9, tf.float32, shapes=[[8, 4]])
    x = tf.placeholder(tf.float32, [8, 4])
    fill, limit = queue.enqueue(x), tf.RunOptions(timeout_in_ms=300)
    w = tf.get_variable("w", [4, 2])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(queue.dequeue(), w))))
    with sessions.opened() as session:
        session.run(fill, {x: ONES})
        session.run(train)
        before = session.run(w)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(train, options=limit)
        np.testing.assert_array_equal(session.run(w), before)
        session.run(fill, {x: ONES})
        session.run(train, options=limit)
        assert np.abs(session.run(w) - before).max() > 0
        assert taken(session) == 1


def test_options_reach_what_the_session_runs_of_a_step(monkeypatch):
    monkeypatch.setenv("NPU_SHIM_PREFETCH", "0")
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(ONES).repeat()).get_next()
    w = tf.get_variable("w", [4, 2])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))))
    seen = []

    def innermost(session, once, fetches, feeds, options, metadata):
        seen.append(options)
        return once(fetches, feeds, options, metadata)

    given = tf.RunOptions(report_tensor_allocations_upon_oom=True, inter_op_thread_pool=-1)
    given.experimental.use_run_handler_pool = False
    with sessions.opened() as session:
        session.run(train)
        interceptors.innermost(session, innermost)
        session.run(train, options=given)
        assert [options_seen.inter_op_thread_pool for options_seen in seen] == [-1]
        assert seen[0].report_tensor_allocations_upon_oom
        assert taken(session) == 1
        moved = dict(vars(session)[engine.ENGINE].residency.moved)
        session.run(train, options=tf.RunOptions())
        empty = tf.RunOptions()
        empty.debug_options.debug_tensor_watch_opts.extend([])
        empty.debug_options.SetInParent()
        session.run(train, options=empty)  # as a MonitoredSession's
        assert vars(session)[engine.ENGINE].residency.moved == moved


@pytest.mark.parametrize("where", ["inspecting", "preparing", "compiling", "loading", "running"])
def test_what_nobody_expected_is_the_session_s_and_a_warning(where, monkeypatch, caplog):
    x, train, _, step = counted()

    def failing(*arguments, **keywords):
        raise AssertionError("1 values for 0 names")

    on = programs.InProcess if options.has_jax() else remote.Worker
    places = {
        "inspecting": (facts, "variables_touched"), "preparing": (engine_step, "make"),
        "compiling": (engine_step.Part, "compiled"), "loading": (on, "load"), "running": (on, "run"),
    }  # fmt: skip
    logging.getLogger("npu_shim").propagate = True
    with sessions.opened() as session:
        monkeypatch.setattr(*places[where], failing)
        with caplog.at_level(logging.WARNING, "npu_shim"):
            for _ in range(3):
                session.run(train, {x: ONES})
        monkeypatch.undo()
        assert session.run(step) == 3
        said = [record.getMessage() for record in caplog.records if "in the session" in record.getMessage()]
        assert len(said) == 1
        assert said[0].endswith("runs in the session: AssertionError: 1 values for 0 names")
        assert "GradientDescent" in said[0]
        assert not taken(session)


def two_containers():
    """(feed, update, variables, start) of a step of two variables of one name, of which one is written."""
    x = tf.placeholder(tf.float32, [8, 4])
    with tf.container("A"):
        p = tf.Variable(np.ones((4, 2), "f"), use_resource=True, name="p")
    other = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 2], shared_name="p", container="B")
    begin = tf.raw_ops.AssignVariableOp(resource=other, value=5 * tf.ones([4, 2]))
    read = tf.raw_ops.ReadVariableOp(resource=other, dtype=tf.float32)
    change = 0.01 * tf.matmul(x, tf.matmul(x, p + read), transpose_a=True)
    return x, p.assign_sub(change).op, [p, read], begin


def test_variables_of_one_name_in_two_containers():
    x, update, values, begin = two_containers()

    def trained(kind):
        with sessions.opened(kind) as session:
            session.run(begin)
            for _ in range(2):
                session.run(update, {x: ONES})
            return session.run(values), kind == "session" or taken(session)

    (wanted, _), (actual, count) = trained("session"), trained("pjrt")
    sessions.assert_close(actual, wanted, rtol=1e-5)
    assert count == 1


def test_a_callable_of_tensorflow_s_own_takes_each_batch_once(monkeypatch):
    """What has run of a step is fed to the rest, also where the callable's options fix the feeds."""
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.range(9).map(lambda n: tf.fill([8, 4], n))).get_next()
    w = tf.get_variable("w", [4, 2])
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.cast(x, tf.float32), w)))
    train = tf.train.GradientDescentOptimizer(0.0).minimize(loss)
    monkeypatch.setattr(loading.Programs, "_load", lambda *_: None)
    with sessions.opened() as session:
        asked = config_pb2.CallableOptions(fetch=[x.name], target=[train.name])
        call = session._make_callable_from_options(asked)
        assert [call()[0][0, 0] for _ in range(3)] == [0, 1, 2]
        assert taken(session) == 1


def test_values_that_are_lost_do_not_keep_the_session_from_going_on(monkeypatch):
    x, train, _, step = counted()
    with sessions.opened() as session:
        session.run(train, {x: ONES})
        on = vars(session)[engine.ENGINE].device

        def gone(*_):
            raise RuntimeError("the device is gone")

        for name in ("run", "get"):
            monkeypatch.setattr(on, name, gone)
        with pytest.raises(tf.errors.InternalError, match="restore a checkpoint"):
            session.run(train, {x: ONES})
        session.run(tf.assign(step, 7))  # as a Saver does
        session.run(train, {x: ONES})
        assert session.run(step) == 8


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_a_variable_that_has_another_shape_than_its_steps_takes_them_to_the_session(resource, caplog):
    x = tf.placeholder(tf.float32, [None, 4])
    zeros = np.zeros([4, 2], np.float32)
    v = tf.get_variable("v", initializer=zeros, validate_shape=False, use_resource=resource)
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.matmul(x, tf.matmul(w, v) + 1) ** 2)
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss, var_list=[w])
    value = tf.placeholder(tf.float32)
    if resource:
        grow = tf.raw_ops.AssignVariableOp(resource=v.handle, value=value)
    else:
        grow = tf.assign(v, value, validate_shape=False).op

    def trained(kind):
        with sessions.opened(kind) as session:
            losses = [session.run([train, loss], {x: ONES})[1]]
            count = taken(session) if kind == "pjrt" else None
            session.run(grow, {value: np.ones([4, 3])})
            losses += [session.run([train, loss], {x: ONES})[1] for _ in range(2)]
            return losses + session.run([v, w]), count

    with caplog.at_level(logging.INFO, "npu_shim"):
        (wanted, _), (actual, count) = trained("session"), trained("pjrt")
    sessions.assert_close(actual, wanted, rtol=1e-5)
    assert count == 1
    assert "has shape [4, 3], and steps were compiled for [4, 2]" in caplog.text


def test_an_empty_batch_has_a_program_and_leaves_the_others_theirs():
    """Sparse updates of it have no rows."""
    rows = tf.placeholder(tf.int64, [None])
    table = tf.get_variable("table", [5, 2], initializer=tf.random_normal_initializer(seed=1))
    w = tf.get_variable("w", [2, 2], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.matmul(tf.gather(table, rows), w) ** 2)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)

    def trained(kind):
        with sessions.opened(kind) as session:
            losses = [session.run([train, loss], {rows: fed})[1] for fed in ([0, 0, 1], [], [2, 2, 4], [], [1, 3])]
            values = session.run(tf.global_variables())
            steps = [known for known in known_of(session) if known.step] if kind == "pjrt" else []
            return [*losses, *values], [known.programs for known in steps]

    (wanted, _), (actual, programs) = trained("session"), trained("pjrt")
    sessions.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)
    assert len(programs[0]) == 3
    assert None not in programs[0].values()


def test_unpatch_in_the_middle_of_training_loses_no_update(caplog):
    caplog.set_level(logging.INFO, "npu_shim")
    x = tf.placeholder(tf.float32, [8, 4])
    weights = tf.get_variable("weights", [4, 2])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - 1))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    def trained(kind):
        losses = []
        with sessions.opened(kind) as session:
            for step in range(9):
                if step == 3:
                    npu_shim.unpatch()
                    losses.append(session.run(weights))
                if step == 6:
                    npu_shim.patch()
                losses.append(session.run([loss, train], {x: ONES})[0])
            return losses, session.run(tf.global_variables()), kind == "session" or taken(session)

    (*wanted, _), (*actual, count) = trained("session"), trained("pjrt")
    for one, other in zip(tf.compat.v2.nest.flatten(actual), tf.compat.v2.nest.flatten(wanted)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-9)  # the last losses are zero, or nearly
    assert count == 1
    assert "npu_shim: engine: after npu_shim.unpatch(), the session runs everything" in caplog.messages
