"""Batches that the engine reads while a step runs: they come in their order, to the runs that would have read them."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine_of_sessions
from npu_shim.engine.device import feeding, programs
from npu_shim.engine.device.worker import remote
from npu_shim.engine.runtime import prefetching
from npu_shim.engine.sessions import ENGINE, Engine
from npu_shim.options import engine as options
from npu_shim.options import prefetch

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph")]
ROWS = np.random.RandomState(3).rand(24, 6).astype("f")


def step(x):
    """(loss, update) of a small network."""
    start = tf.initializers.truncated_normal(stddev=0.3, seed=4)
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [6, 8], initializer=start, use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1))
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def session_of(engine="pjrt", count="auto"):
    config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_engine=engine)
    entry = config.graph_options.rewrite_options.custom_optimizers[0]
    entry.parameter_map["npu_shim_prefetch"].s = str(count).encode()
    return tf.Session(config=config)


def held(session):
    """Names of the iterators of which batches are held now."""
    ahead = getattr(session, ENGINE)._ahead._ahead
    return sorted(name for name, iterator in ahead.items() if iterator is not None and iterator.has_any)


def odd_script(engine, count):
    """What a script sees that reads one iterator by several runs, to its end, and again from its beginning."""
    with tf.Graph().as_default():
        data = tf.data.Dataset.from_tensor_slices({"x": ROWS, "n": np.arange(24)}).batch(3)
        iterator = tf.data.make_initializable_iterator(data)
        batch, other = iterator.get_next(), iterator.get_next("other")
        loss, train = step(batch["x"])
        seen = []
        with session_of(engine, count) as session:
            session.run([tf.global_variables_initializer(), iterator.initializer])
            seen += [session.run([loss, train])[0] for _ in range(2)]
            seen.append(session.run([train, loss, batch["n"]])[1:])
            seen.append(session.run(other["n"]))  # a batch that no step gets
            seen.append(session.run(loss, {batch["x"]: ROWS[:2]}))  # takes none
            seen.append(session.run([loss, train])[0])
            seen.append(session.run(batch))
            session.run(iterator.initializer)
            for _ in range(9):
                try:
                    seen.append(session.run([loss, batch["n"], train])[:2])
                except tf.errors.OutOfRangeError as error:
                    seen.append(type(error).__name__)
            session.run(iterator.initializer)
            seen.append(session.run([loss, batch["n"], train])[:2])
            seen.append(session.run(tf.trainable_variables()))
            if engine == "pjrt":
                assert sum(known.step is not None for known in getattr(session, ENGINE).known.values()) == 2
    return seen


@pytest.mark.parametrize("count", ["auto", 3])
def test_each_run_gets_the_batch_that_it_would_have_read(count):
    expected, got = odd_script("session", 0), odd_script("pjrt", count)
    assert len(expected) == len(got)
    for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected)):
        if isinstance(other, str):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5)
    assert "OutOfRangeError" in [one for one in got if isinstance(one, str)]


def test_a_batch_is_read_while_the_step_runs(monkeypatch):
    begun, in_time, run_group = threading.Semaphore(0), [], Engine._on_device

    def row(n):
        begun.release()
        return np.float32([n] * 6)

    def slow(self, *arguments):
        in_time.append(begun.acquire(timeout=60))  # the next step's batch, which this step does not wait for
        return run_group(self, *arguments)

    monkeypatch.setattr(Engine, "_on_device", slow)
    data = tf.data.Dataset.range(9).map(lambda n: tf.ensure_shape(tf.numpy_function(row, [n], tf.float32), [6]))
    x = tf.data.make_one_shot_iterator(data.batch(1)).get_next()
    _, train = step(x)
    with session_of(count=1) as session:
        session.run(tf.global_variables_initializer())
        first = session.run([x, train])[0]
        assert begun.acquire(timeout=60)  # its own
        second = session.run([x, train])[0]
    assert in_time == [True, True]
    assert (first[0, 0], second[0, 0]) == (0, 1)


def slow_step(x):
    """(loss, update) whose products take a fraction of a second."""
    size = 1000
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        w = tf.get_variable("slow", [size, size], initializer=tf.initializers.orthogonal(seed=1), use_resource=True)
    y = tf.pad(x, [[0, 0], [0, size - 6]])
    for _ in range(8):
        y = tf.matmul(tf.tanh(tf.matmul(w, w, transpose_b=True)), y, transpose_b=True)[:, :12]
        y = tf.matmul(y, w, transpose_a=True)
    loss = tf.reduce_mean(tf.square(y))
    return loss, tf.train.GradientDescentOptimizer(1e-3).minimize(loss)


def spied(monkeypatch, device):
    """[(what, when it began, when it ended, of what)] of what a class of devices does from now on, in its order."""
    seen, taken = [], feeding.among

    def among(staged, feeds):
        names = taken(staged, feeds)
        seen.append(("there", time.monotonic(), time.monotonic(), names))
        return names

    def noted(method, done=lambda result: None):
        def call(self, number, *arguments, **more):
            since = time.monotonic()
            result = method(self, number, *arguments, **more)
            done(result)
            seen.append((method.__name__, since, time.monotonic(), result))
            return result

        monkeypatch.setattr(device, method.__name__, call)

    noted(device.run, lambda fetched: [np.asarray(value) for value in fetched.values()])
    noted(device.stage)
    monkeypatch.setattr(sys.modules[device.__module__], "among", among)
    return seen


@pytest.mark.parametrize("count", [1, 2], ids=["one device", "two devices"])
def test_a_batch_is_on_the_device_before_its_step_and_goes_there_while_the_step_before_it_runs(monkeypatch, count):
    in_worker = count > 1 or not options.has_jax()
    if in_worker:
        python = options.interpreter() or sys.executable
        monkeypatch.setattr(engine_of_sessions, "open_device", lambda _: remote.Worker(python, devices=count))
    data = tf.data.Dataset.from_tensor_slices((ROWS[:20] / 8, np.arange(20.0, dtype="f"))).batch(4)
    x, n = tf.data.make_one_shot_iterator(data).get_next()
    factor = tf.placeholder(tf.float32, [])
    loss, train = slow_step(x * factor + tf.reduce_mean(n))
    losses = {}
    for engine in ("session", "pjrt"):
        with session_of(engine) as session:
            session.run([tf.global_variables_initializer()])
            session.run([loss, train], {factor: 1.0})
            seen = spied(monkeypatch, remote.Worker if in_worker else programs.InProcess) if engine == "pjrt" else []
            losses[engine] = [session.run([loss, train], {factor: 1.0})[0] for _ in range(3)]
        # a new session reads from the beginning
    np.testing.assert_allclose(losses["pjrt"], losses["session"], rtol=1e-3)
    there = [of for what, _, _, of in seen if what == "there"]
    assert [sorted(names) for names in there] == [sorted([x.name, n.name])] * 3
    steps, transfers = ([row for row in seen if row[0] == what] for what in ("run", "stage"))
    assert len(steps) == 3
    assert len(transfers) >= 3
    for (_, begun, ended, _), (_, since, until, staged) in zip(steps, transfers):
        assert staged.number is not None
        assert begun < since < until < ended


@pytest.mark.parametrize("busy", [True, False])
def test_a_large_feed_is_on_the_device_before_the_step_that_runs_has_ended(monkeypatch, busy):
    device = remote.Worker if not options.has_jax() else programs.InProcess
    monkeypatch.setattr(device, "is_busy", busy)
    rows = np.random.RandomState(5).rand(90_000, 6).astype("f")
    given = tf.placeholder(tf.float32, [None, 6])
    _, train = step(given)
    values = {}
    for engine in ("session", "pjrt"):
        with session_of(engine) as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {given: rows})
            seen = spied(monkeypatch, device) if engine == "pjrt" else []
            for number in range(3):
                fed = rows * number
                session.run(train, {given: fed})
                fed[...] = np.nan  # it is the script's again
            session.run(train, {given: rows[:5]})  # what is small waits for its turn
            values[engine] = session.run(tf.trainable_variables())
    np.testing.assert_allclose(values["pjrt"], values["session"], rtol=1e-4)
    assert sum(what == "stage" for what, *_ in seen) == 3 * busy
    assert [of for what, _, _, of in seen if what == "there"] == [[given.name]] * 3 * busy


@pytest.mark.skipif(not options.has_jax(), reason="JAX is not beside this TensorFlow, but in a worker")
def test_a_device_with_memory_of_its_own_is_given_large_arrays_as_they_are(monkeypatch):
    memory = np.zeros(2_400_100, np.uint8)
    # where a CPU's programs would not take it as it is; a GPU's transfer does not care
    rows = memory[-memory.ctypes.data % 64 + 16 :][:2_400_000].reshape(-1, 6)
    given, small = tf.placeholder(tf.uint8, [None, 6]), tf.placeholder(tf.float32, [])
    loss, train = step(tf.cast(given, tf.float32) / 255 * small)
    copied, plain = [], feeding.arrays.copy
    monkeypatch.setattr(feeding.arrays, "copy", lambda value, *of: copied.append(value.nbytes) or plain(value, *of))
    values = {}
    for engine in ("session", "pjrt"):
        with session_of(engine) as session:
            session.run(tf.global_variables_initializer())
            rows[...] = np.random.RandomState(5).randint(0, 255, rows.shape)
            for fed in (rows, rows[::2], np.asfortranarray(rows), rows[:9]):
                session.run([loss, train], {given: fed, small: 0.5})
                if engine == "pjrt":
                    session._npu_shim_engine.device._has_own_memory = True
            session.run(train, {given: rows, small: 0.5})
            rows[...] = 7  # it is the script's again
            values[engine] = session.run(tf.trainable_variables())
    np.testing.assert_allclose(values["pjrt"], values["session"], rtol=1e-4)
    # the first is a CPU's, the next two are no rows one behind the other, the fourth is small
    assert sorted(copied) == [4] * 5 + [54, 1_200_000, 2_400_000, 2_400_000]


@pytest.mark.parametrize("fetches", [True, False], ids=["results are fetched", "nothing is fetched"])
def test_threads_that_share_an_iterator_and_a_session_train_on_each_batch_once(fetches):
    rows = np.random.RandomState(2).randint(0, 7, [1024, 6]).astype("f")
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(rows).batch(4))
    x, given = iterator.get_next(), tf.placeholder(tf.float32, [None, 6])
    w = tf.get_variable("w", [6, 8], initializer=tf.zeros_initializer(), use_resource=True)
    optimizer = tf.train.GradientDescentOptimizer(1.0)  # which takes a batch's sum from each column of w
    losses = [tf.reduce_sum(tf.matmul(batch, w)) for batch in (x, given)]
    asked = [[loss, optimizer.minimize(loss)][0 if fetches else 1 :] for loss in losses]
    with session_of(count=2) as session:
        session.run([tf.global_variables_initializer(), iterator.initializer])
        read = []

        def train():
            for number in range(1000):
                try:
                    if number % 9 == 8:
                        batch = session.run(x)
                        session.run(asked[1], {given: batch})
                        batch[...] = 99  # it is the script's
                        read.append(batch)
                    else:
                        session.run(asked[0])
                except tf.errors.OutOfRangeError:
                    return

        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(session.run(w), -rows.sum(0)[:, None].repeat(8, 1))
        assert len(read) > 3


def test_no_exit_waits_for_a_batch_that_does_not_come():
    script = """
        import threading
        import numpy as np
        import tensorflow.compat.v1 as tf
        import npu_shim

        tf.disable_eager_execution()
        npu_shim.enable(engine="pjrt")

        def rows():
            yield np.ones([2, 6], "f")
            threading.Event().wait()

        data = tf.data.Dataset.from_generator(rows, tf.float32, tf.TensorShape([2, 6]))
        x = tf.data.make_one_shot_iterator(data).get_next()
        w = tf.get_variable("w", [6, 8], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        session.run([loss, train])
        engine = session._npu_shim_engine
        assert any(one.has_any for one in engine._ahead._ahead.values())
        print("trained", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, prefetch.VARIABLE: "1"},
        timeout=120, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout == b"trained\n"


def test_what_could_tell_is_not_read_ahead(caplog):
    def by(dataset, **kinds):
        return tf.data.make_initializable_iterator(dataset, **kinds)

    limit = tf.get_variable("limit", [], initializer=tf.ones_initializer(), use_resource=True)
    start = tf.data.Dataset.range(9).map(lambda n: tf.cast(n, tf.float32))
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 1.0)
    iterators = {
        "function": by(start.map(lambda n: tf.ensure_shape(tf.numpy_function(np.float32, [n], tf.float32), []))),
        "variable": by(start.map(lambda n: tf.minimum(n, limit))),
        "table": by(tf.data.Dataset.range(9).map(lambda n: tf.cast(n, tf.float32) * table.lookup(n))),
        "saved": by(start), "waited for": by(start), "plain": by(start),
    }  # fmt: skip
    tf.data.experimental.make_saveable_from_iterator(iterators["saved"])
    numbers = {name: iterator.get_next() for name, iterator in iterators.items()}
    with tf.control_dependencies([numbers["waited for"]]):
        waits = tf.constant(1.0)
    loss, train = step(tf.ones([2, 6]) * sum(numbers.values()) * waits)
    nodes = {iterator._iterator_resource.op.name: name for name, iterator in iterators.items()}
    for count, expected in (("auto", ["plain"]), (1, ["function", "plain", "table", "variable"])):
        with session_of(count=count) as session:
            starts = [iterator.initializer for iterator in iterators.values()]
            session.run([tf.global_variables_initializer(), *starts])
            session.run([loss, train])
            assert sorted(nodes[name] for name in held(session)) == expected
            assert {float(number) for number in session.run(numbers).values()} == {1.0}
    assert "is not read ahead: '" in caplog.text


def test_tensorflow_1_which_rewrites_no_graph_that_is_fed_a_batch_reads_none_ahead_unasked(monkeypatch):
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(ROWS).batch(2)).get_next()
    with tf.Session() as session:
        monkeypatch.setattr(prefetching.tf, "__version__", "1.15.5")
        asked = [prefetching.Prefetching(session, count, dict) for count in (prefetch.AUTO, 1)]
        for one in asked:
            one.ask([x.op.name], ())
        assert [any(one._ahead.values()) for one in asked] == [False, True]


def test_an_iterator_that_may_be_read_by_its_handle_is_not_read_ahead():
    iterators = [tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(ROWS).batch(n)) for n in (2, 3)]
    handle = tf.placeholder(tf.string, [])
    x = tf.data.Iterator.from_string_handle(handle, tf.float32, [None, 6]).get_next()
    loss, train = step(x)
    other_loss, other_train = step(iterators[0].get_next())
    with session_of() as session:
        session.run(tf.global_variables_initializer())
        handles = session.run([iterator.string_handle() for iterator in iterators])
        for fed in (handles[0], handles[1], handles[0]):
            session.run([loss, train], {handle: fed})
        session.run([other_loss, other_train])
        assert not held(session)
        np.testing.assert_array_equal(session.run(x, {handle: handles[0]}), ROWS[6:8])


def test_an_iterator_that_is_run_without_its_batch_is_an_error_where_one_is_held():
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(ROWS).batch(2)).get_next()
    loss, train = step(x)
    with session_of() as session:
        session.run(tf.global_variables_initializer())
        session.run(x.op)
        session.run([loss, train])
        assert held(session) == [x.op.inputs[0].op.name]
        with pytest.raises(tf.errors.FailedPreconditionError, match="npu_shim_prefetch=0"):
            session.run(x.op)


def test_a_run_that_is_refused_takes_no_batch_and_one_that_is_given_one_gives_it_as_it_came():
    data = tf.data.Dataset.from_tensor_slices((ROWS, np.arange(24), np.array([b"a\0", b""] * 12, object)))
    iterator = tf.data.make_initializable_iterator(data)
    x, n, text = iterator.get_next()
    factor = tf.placeholder(tf.float32, [2])
    loss, train = step(x[None] * factor[0])
    with session_of(count=2) as session:
        session.run([tf.global_variables_initializer(), iterator.initializer])
        session.run([loss, train], {factor: [1, 0]})
        for fetches in ([loss, n, train], [n, factor], [iterator.initializer, factor]):
            for wrong in ({factor: [1, 0, 0]}, {factor: ["a", 0]}, {"none:0": 1}):
                with pytest.raises((TypeError, ValueError)):
                    session.run(fetches, wrong)
        assert held(session)
        first, second = session.run({"n": n, "text": [text]}), session.run((n, [text], factor), {factor: [1, 0]})
    assert first == {"n": 1, "text": [b""]}
    assert second[:2] == (2, [b"a\0"])
    for number, (string,) in (first.values(), second[:2]):
        assert (type(number), type(string)) == (np.int64, bytes)


def test_what_is_made_later_and_would_miss_a_batch_is_an_error():
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(ROWS).batch(3))
    x = iterator.get_next()
    loss, train = step(x)
    with session_of() as session:
        session.run([tf.global_variables_initializer(), iterator.initializer])
        session.run([loss, train])
        handle = iterator.string_handle()
        saver = tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
        with tf.control_dependencies([x]):
            waits = tf.constant(1.0)
        given = tf.data.Iterator.from_string_handle(session.run(handle), tf.float32, [None, 6]).get_next()
        optional = tf.data.experimental.get_next_as_optional(iterator).get_value()
        for late in (saver.saver_def.save_tensor_name, waits, given, optional, tf.group(x)):
            with pytest.raises(tf.errors.FailedPreconditionError, match="before the first step, or set npu_shim_pref"):
                session.run(late, {saver.saver_def.filename_tensor_name: "unused"})
        np.testing.assert_array_equal(session.run(x), ROWS[3:6])
        session.run([loss, train])
        assert not held(session)
        np.testing.assert_array_equal(session.run(given), ROWS[9:12])


@pytest.mark.parametrize("reads", [False, True], ids=["of something else", "that reads the iterator"])
def test_a_batch_that_was_read_ahead_is_there_behind_a_partial_run(reads, caplog):
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(ROWS).batch(3))
    x, other = iterator.get_next(), iterator.get_next("other")
    loss, train = step(x)
    seen = other if reads else tf.constant(5.0)
    with session_of() as session:
        session.run([tf.global_variables_initializer(), iterator.initializer])
        session.run([loss, train])
        assert held(session)
        handle = session.partial_run_setup([seen], [])
        np.testing.assert_array_equal(session.partial_run(handle, seen), ROWS[6:9] if reads else 5.0)
        np.testing.assert_array_equal(session.run(x), ROWS[3:6])
        np.testing.assert_array_equal(session.run(x), ROWS[9:12] if reads else ROWS[6:9])
    assert ("a partial run reads 'IteratorV2' behind a batch" in caplog.text) == reads


def test_a_number_that_is_none_is_told():
    from npu_shim.rewriter.errors import ConfigError

    assert [prefetch.of({}), prefetch.of({"npu_shim_prefetch": "2"}), prefetch.of({"npu_shim_prefetch": 0})] == [
        "auto",
        2,
        0,
    ]
    for word in ("autp", -1, 1.5, True):
        with pytest.raises(ConfigError, match="expected a number of batches"):
            prefetch.of({"npu_shim_prefetch": word})
