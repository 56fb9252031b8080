"""What compiled steps do with their device, in this process or in the worker: programs, state, failures, memory."""

import gc
import os
import signal
import threading
import weakref

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.engine.device.programs import PassedBound
from npu_shim.export import traced
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer
from npu_shim.options import engine
from npu_shim.step.counters import BOUNDS

pytestmark = pytest.mark.skipif(
    not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"
)
in_worker = pytest.mark.skipif(engine.has_jax(), reason="this interpreter has JAX")
FETCHES = {"loss": "loss:0", "train": "train", "w": "w"}
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}
MIX = {"precision_mode": "allow_mix_precision", "profile": "gpu"}


def built(convolution=False):
    """A graph with dropout, a loss scale that grows, and a step counter."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf.placeholder(tf.float32, [None, 6], "x"), tf.placeholder(tf.int32, [None], "y")
        h = tf.nn.relu(tf.matmul(x, tf.get_variable("w", [6, 16], initializer=tf.glorot_uniform_initializer(1))))
        if convolution:
            kernel = tf.get_variable("k", [3, 1, 2], initializer=tf.glorot_uniform_initializer(3))
            h = tf.reshape(tf.nn.conv1d(h[..., None], kernel, 1, "SAME"), [-1, 32])
        h = tf.nn.dropout(h, rate=0.2, seed=5)
        logits = tf.matmul(h, tf.get_variable("v", [h.shape[1], 2], initializer=tf.glorot_uniform_initializer(2)))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        manager = ExponentialUpdateLossScaleManager(2.0**10, 3, 1, decr_ratio=0.5)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.01), manager)
        optimizer.minimize(loss, tf.train.get_or_create_global_step(), name="train")
        tf.global_variables_initializer()
    return graph


def batches(count, rows=8):
    rng = np.random.RandomState(0)
    rows_of = [rng.randn(rows, 6).astype("f") for _ in range(count)]
    return [{"x:0": row, "y:0": (row.sum(1) > 0).astype("i")} for row in rows_of]


def stacked(some):
    return {name: np.stack([batch[name] for batch in some]) for name in some[0]}


def step_of(graph, **more):
    return npu_shim.compile_step(graph, FETCHES, ["x", "y"], initializer="init", **{**FLOAT32, **more})


def device_of(step):
    return step._programs._open().device


def test_steps_and_loops_are_the_session_s_and_checkpoints_go_both_ways(tmp_path):
    """A convolution, dropout and a loss scale; a checkpoint of the step, in a Saver and in another step."""
    graph, data = built(convolution=True), batches(8)
    with tf.Session(graph=graph) as session, graph.as_default():
        session.run("init")
        one, loop = (npu_shim.compile_step(session, FETCHES, ["x", "y"], count) for count in (1, 4))
        for feeds in data[:4]:
            last, wanted = one(feeds), session.run(FETCHES, feeds)
            np.testing.assert_allclose(last["loss"], wanted["loss"], rtol=1e-5)
            assert last["train"] is None
        np.testing.assert_allclose(loop(stacked(data[:4]))["loss"], last["loss"], rtol=1e-6)
        for name, value in one.state().items():
            np.testing.assert_allclose(loop.state()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
        path = one.save(tmp_path / "at4")
        second = [one(feeds)["loss"] for feeds in data[4:]]
        loop.load(path)
        np.testing.assert_allclose(loop(stacked(data[4:]))["loss"], second[-1], rtol=1e-6)
        one.load(path)
        assert [one(feeds)["loss"] for feeds in data[4:]] == second
        saver = tf.train.Saver(tf.global_variables())
        saver.restore(session, path)
        assert session.run(tf.train.get_global_step(graph)) == 4
        np.testing.assert_allclose(session.run(FETCHES, data[4])["loss"], second[0], rtol=1e-5)


def test_mixed_precision_is_near_to_float32():
    graph, data = built(), batches(6)
    losses = [[step(feeds)["loss"] for feeds in data] for step in (step_of(graph), step_of(graph, **MIX))]
    np.testing.assert_allclose(losses[1], losses[0], rtol=8e-3)
    assert losses[1] != losses[0]


def test_steps_without_feeds_or_state_run():
    with tf.Graph().as_default() as graph:
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
        more = tf.identity(count.assign_add(1), name="more")
        tf.global_variables_initializer()
    assert npu_shim.compile_step(graph, more, initializer="init", iterations_per_loop=4)() == 4
    with tf.Graph().as_default() as graph:
        y = tf.matmul(tf.placeholder(tf.float32, [2, 2], "x"), tf.eye(2), name="made")
    np.testing.assert_array_equal(npu_shim.compile_step(graph, [y, y], ["x"])({"x": np.eye(2)}), [np.eye(2)] * 2)


def test_of_many_shapes_the_least_recently_used_program_gives_way(monkeypatch):
    loads, lowered = [], traced.of

    def counted(prepared, shapes, *others, **more):
        loads.append(shapes[0][0])
        return lowered(prepared, shapes, *others, **more)

    step, plain = step_of(built(), programs=2), step_of(built())
    order = (8, 3, 8, 5, 8, 3)  # 5 takes the place of 3, and 3 then that of 5
    with monkeypatch.context() as patched:
        patched.setattr(traced, "of", counted)
        losses, programs = [], []
        for rows in order:
            losses.append(step(batches(1, rows)[0])["loss"])
            number = step._programs._open().programs.get((((rows, 6), (rows,)),))
            code = getattr(device_of(step)._programs[number], "call", None)
            programs.append(code and weakref.ref(code))  # that of a worker is there
            assert len(device_of(step)._programs) <= 2
    del code
    assert loads == [8, 3, 5, 3]
    np.testing.assert_array_equal(losses, [plain(batches(1, rows)[0])["loss"] for rows in order])
    gc.collect()
    if programs[0] is not None:  # freed, and not only forgotten
        assert [program() is not None for program in programs] == [True, False, True, False, True, True]


def test_a_length_that_is_fed_is_part_of_the_program():
    """A loop of steps takes it where all of its steps have the same."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [None, 2], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.eye(2, dtype=np.float32), use_resource=True)
        h = tf.while_loop(lambda k, _: k < n, lambda k, h: (k + 1, tf.tanh(tf.matmul(h, w))), (0, x[:n]))[1]
        fetches = [tf.matmul(x[:n], w * 2.0), tf.gradients(tf.reduce_sum(h), w)[0]]
        init = tf.global_variables_initializer()
    one, loop = (npu_shim.compile_step(graph, fetches, [x, n], count, init, **FLOAT32) for count in (1, 2))
    rows = np.arange(8.0, dtype=np.float32).reshape(4, 2) / 8  # tanh of much more has no slope
    with tf.Session(graph=graph) as session:
        session.run(init)
        for count, given in ((1, 4), (3, 4), (1, 2), (1, 4)):
            feeds = {x: rows[:given], n: count}
            for actual, wanted in zip(one(feeds), session.run(fetches, feeds)):
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
        for actual, wanted in zip(loop({x: [rows, rows], n: [3, 3]}), session.run(fetches, {x: rows, n: 3})):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    assert len(device_of(one)._programs) == 3
    with pytest.raises(npu_shim.PlanError, match=r"feed 'n:0' must have one value in the 2 steps of a call, .*: node "):
        loop({x: [rows, rows], n: [3, 2]})


def test_errors_name_what_is_wrong(monkeypatch):
    graph = built()
    step = step_of(graph)
    with pytest.raises(npu_shim.ConfigError, match="feed 'y:0' is missing"):
        step({"x:0": np.zeros([8, 6])})
    shape = r"feed 'x:0' has shape \(8, 5\), the graph expects \((None|\?), 6\)"
    with pytest.raises(npu_shim.ConfigError, match=shape):
        step({"x:0": np.zeros([8, 5]), "y:0": np.zeros([8], "i")})
    with pytest.raises(npu_shim.ConfigError, match=r"engine is 'pjtr', expected .* 'pjrt'"):
        step_of(graph, engine="pjtr")
    with pytest.raises(npu_shim.ConfigError, match='XLA compiles all steps now: leave out engine="tensorflow"'):
        step_of(graph, engine="tensorflow")
    with pytest.raises(npu_shim.ConfigError, match="device is 'GPU', and JAX finds cpu"):
        step_of(graph, device="GPU", engine="pjrt")(batches(1)[0])
    with pytest.raises(npu_shim.ConfigError, match="the step's variables have no values"):
        npu_shim.compile_step(graph, FETCHES, ["x", "y"], **FLOAT32)(batches(1)[0])
    for number in (0, -1, "many"):
        with pytest.raises(npu_shim.ConfigError, match="programs"):
            step_of(graph, programs=number)
    monkeypatch.setattr(engine, "has_jax", lambda: False)
    monkeypatch.setattr(engine, "interpreter", lambda: None)
    with pytest.raises(npu_shim.ConfigError, match=r"compile_step needs JAX: .*npu-shim engine install"):
        step_of(graph)


def test_a_step_that_is_refused_says_where():
    with tf.Graph().as_default() as graph:
        v, x = tf.get_variable("v", initializer=3), tf.placeholder(tf.float32, [], "x")
        tf.fill([v], x, name="filled")
        tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, "filled:0", ["x"], initializer="init")
    with pytest.raises(npu_shim.PlanError, match=r"node 'filled' \(Fill\): .* known when .* traced; run the step in"):
        step({"x": 1.0})
    assert step.state() == {"v": 3}


def test_a_device_that_fails_leaves_the_state_of_the_last_call(monkeypatch):
    step, data = step_of(built()), batches(4)
    for feeds in data[:2]:
        step(feeds)
    failing, real = device_of(step), device_of(step).run

    def run(*arguments):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    failing.run = run
    with pytest.raises(RuntimeError, match=r"compile_step failed on cpu.* has the state of the last completed call"):
        step(data[2])
    failing.run = real
    assert step.state()["global_step"] == 2
    step(data[2])
    assert step.state()["global_step"] == 3
    run = device_of(step).run
    monkeypatch.setattr(device_of(step), "run", lambda *steps: {**run(*steps), BOUNDS: np.bool_(False)})
    with pytest.raises(PassedBound, match="restore a checkpoint"):
        step(data[3])


@in_worker
def test_one_worker_serves_all_steps_and_another_one_takes_its_place():
    """Variables of the same names are each step's own, also where threads run them at once."""
    first, second, data = step_of(built()), step_of(built()), batches(6)
    first(data[0])
    second(data[0])
    started = device_of(first).started
    assert device_of(second).started is started
    problems = []

    def trains(step, count):
        try:
            for feeds in data[:count]:
                step(feeds)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=trains, args=given) for given in ((first, 5), (second, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert [step.state()["global_step"] for step in (first, second)] == [6, 4]
    os.kill(started.pid, signal.SIGKILL)
    for step, count in ((first, 6), (second, 4)):
        with pytest.raises(RuntimeError, match=r"ended \(killed by signal 9\); the step has the state of the last"):
            step(data[0])
        assert step.state()["global_step"] == count
        step(data[0])
        assert step.state()["global_step"] == count + 1
    assert device_of(first).started is device_of(second).started is not started


def test_a_step_that_nobody_has_any_more_holds_nothing_on_its_device():
    step = step_of(built())
    step(batches(1)[0])
    device = weakref.ref(device_of(step))
    channel = getattr(device(), "_channel", None)
    del step
    gc.collect()
    assert device() is None
    assert channel is None or channel._end.fileno() == -1  # closed, which ends what serves it in the worker


@sessions.unless_in_worker
def test_values_are_computed_again():
    """A loop and a conditional of TensorFlow 1, and layers with activations of many ops and with seeded dropout."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        h = x = tf.placeholder(tf.float32, [None, 16], "x")
        h = tf.while_loop(lambda n, h: n < 3, lambda n, h: (n + 1, tf.tanh(h)), (0, h))[1]
        h = tf.cond(tf.reduce_sum(x) > 0, lambda: 2.0 * h, lambda: tf.sin(h))
        for number in range(3):
            kernel = tf.get_variable("w%d" % number, initializer=np.linspace(-1, 1, 256).astype("f").reshape(16, 16))
            h = tf.matmul(h, kernel)
            h = tf.nn.dropout(h * 0.5 * (1 + tf.tanh(0.8 * (h + 0.04 * h * h * h))), rate=0.1)
        loss = tf.reduce_mean(tf.square(h - x))
        fetches = [loss, tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)]
        init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init)
        step = npu_shim.compile_step(session, fetches, [x], recompute="memory")
        for number in range(3):
            feeds = {x: np.random.RandomState(number).randn(32, 16)}
            np.testing.assert_allclose(step(feeds)[0], session.run(fetches, feeds)[0], rtol=1e-6)
    assert step.recomputation.chains
    assert step.attention.because == "it becomes kernels in programs for GPUs only"
