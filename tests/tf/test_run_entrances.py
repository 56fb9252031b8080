"""What watches or fixes a session's runs works however a run is started: run, callables, Keras, after the session."""

import collections
import gc
import json
import logging
import time
import types
import weakref

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.estimator import iterations
from npu_shim.session.interception import interceptors
from npu_shim.session.observers import dump, profiling, ranks_apart

pytestmark = pytest.mark.usefixtures("patched")


def by_run(session, fetch, feeds):
    return session.run(fetch, feeds)


def by_feed_list(session, fetch, feeds):
    return session.make_callable(fetch, list(feeds))(*feeds.values())


def by_options(session, fetch, feeds):
    options = callable_options()
    options.feed.extend(tensor.name for tensor in feeds)
    options.fetch.append(fetch.name)
    options.target.append(fetch.op.name)
    arrays = [np.asarray(value, tensor.dtype.as_numpy_dtype) for tensor, value in feeds.items()]
    [value] = session._make_callable_from_options(options)(*arrays)
    return value


def by_connection(session, fetch, feeds):
    """As Keras feeds what an input pipeline gives: a tensor in the place of a placeholder."""
    options = callable_options()
    for tensor, value in feeds.items():
        connection = options.tensor_connection.add()
        with session.graph.as_default():
            connection.from_tensor = tf.constant(value, tensor.dtype).name
        connection.to_tensor = tensor.name
    options.fetch.append(fetch.name)
    [value] = session._make_callable_from_options(options)()
    return value


def callable_options():
    from tensorflow.core.protobuf import config_pb2

    return config_pb2.CallableOptions()


ENTRANCES = [by_run, by_feed_list, by_options, by_connection]


def dumps(path, **options):
    return sessions.config(precision_mode="force_fp32", enable_dump=True, dump_path=str(path), **options)


def index(folder):
    return json.loads((folder / "index.json").read_text())


class TestEveryEntrance:
    @pytest.mark.parametrize("entrance", ENTRANCES)
    def test_dumps(self, tmp_path, entrance):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [2], "x")
            y = tf.multiply(x, 2.0, name="double")
            with tf.Session(config=dumps(tmp_path, dump_layer="double")) as session:
                assert entrance(session, y + 1.0, {x: [1.0, 2.0]}).tolist() == [3.0, 5.0]
        entry = [tensor for tensor in index(tmp_path / "graph_0" / "step_0") if tensor["op"] == "double"]
        assert np.load(str(tmp_path / "graph_0" / "step_0" / entry[0]["file"])).tolist() == [2.0, 4.0]

    @pytest.mark.parametrize("entrance", ENTRANCES)
    def test_the_overflow_search(self, tmp_path, entrance):
        options = sessions.config(precision_mode="force_fp16", enable_dump_debug=True, dump_path=str(tmp_path))
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [2], "x")
            y = tf.square(x, name="planted") * 0.5
            with tf.Session(config=options) as session:
                entrance(session, y, {x: [1000.0, 2.0]})
        [report] = tmp_path.rglob("overflow.json")
        assert json.loads(report.read_text())["op"] == "planted"

    @pytest.mark.parametrize("entrance", ENTRANCES)
    def test_iterations(self, entrance):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [], "x")
            total = tf.get_variable("total", initializer=0.0, use_resource=True)
            with tf.control_dependencies([total.assign_add(x)]):
                step = tf.constant(1.0)
            with tf.Session() as session:
                session.run(total.initializer)
                iterations.repeat(session, step.op, lambda _: 3)
                entrance(session, step, {x: 2.0})
                assert session.run(total) == 6.0

    def test_a_callable_without_feeds(self, tmp_path):
        with tf.Graph().as_default():
            y = tf.square(3.0, name="square")
            with tf.Session(config=dumps(tmp_path, dump_layer="square")) as session:
                assert session.make_callable({"y": y})() == {"y": 9.0}
                metadata = tf.RunMetadata()
                run = session.make_callable(y, accept_options=True)
                assert run(options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata) == 9.0
        assert metadata.partition_graphs
        assert (tmp_path / "graph_0" / "step_0" / "index.json").exists()

    def test_callables_of_sessions_that_nothing_watches_are_tensorflows_own_in_what_they_give(self):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [2], "x")
            total = tf.get_variable("total", initializer=0.0, use_resource=True)
            step = total.assign_add(1.0).op
            with tf.Session() as session:
                session.run(total.initializer)
                assert session.make_callable(step)() is None
                assert session.make_callable([total, step])()[1] is None
                assert by_options(session, x * 2.0, {x: [1.0, 2.0]}).tolist() == [2.0, 4.0]
                assert by_connection(session, x * 2.0, {x: [1.0, 2.0]}).tolist() == [2.0, 4.0]
                with pytest.raises(TypeError):
                    session.make_callable(3)

    def test_a_partial_run_is_not_watched_and_says_so_once(self, tmp_path, caplog):
        logging.getLogger("npu_shim").propagate = True
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [], "x")
            double = x * 2.0
            with tf.Session(config=dumps(tmp_path)) as session:
                for _ in range(2):
                    handle = session.partial_run_setup([double], [x])
                    assert session.partial_run(handle, double, {x: 2.0}) == 4.0
        assert len([r for r in caplog.records if "a partial run is not watched" in r.getMessage()]) == 1

    def test_keras_fit(self, tmp_path):
        if not hasattr(tf, "keras"):
            pytest.skip("this TensorFlow has no Keras for graphs")
        options = sessions.config(
            precision_mode="force_fp16", enable_dump=True, enable_dump_debug=True, dump_path=str(tmp_path),
            dump_layer="dense",
        )  # fmt: skip
        with tf.Graph().as_default(), tf.Session(config=options) as session:
            tf.keras.backend.set_session(session)
            model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,), name="dense")])
            model.compile("sgd", "mse")
            x, y = np.full([8, 4], 300.0, np.float32), np.zeros([8, 2], np.float32)
            model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        steps = sorted(path.parent.name for path in tmp_path.rglob("index.json") if "dense/MatMul" in path.read_text())
        assert "step_1" in steps
        assert list(tmp_path.rglob("overflow.json"))


class TestFetches:
    def test_every_structure_that_a_session_takes(self, tmp_path):
        pair = collections.namedtuple("Pair", "a b")
        with tf.Graph().as_default():
            one, two = tf.constant(1.0) * 1.0, tf.constant(2.0) * 1.0
            ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
            sparse = tf.SparseTensor([[0]], [one], [3])
            with tf.Session(config=dumps(tmp_path, dump_data="stats")) as session:
                assert session.run(collections.UserDict(a=one, b=[two])) == {"a": 1.0, "b": [2.0]}
                assert session.run(pair(one, {"t": two})) == pair(1.0, {"t": 2.0})
                assert session.run(ragged).to_list() == [[1.0], [2.0, 3.0]]
                assert session.run(sparse).values.tolist() == [1.0]
                assert session.run([]) == []
        assert len(list(tmp_path.glob("graph_*"))) == 4  # the first two fetch the same

    def test_loops_are_found_in_them(self):
        with tf.Graph().as_default():
            total = tf.get_variable("total", initializer=0.0, use_resource=True)
            step = total.assign_add(1.0).op
            with tf.Session() as session:
                session.run(total.initializer)
                iterations.repeat(session, step, lambda _: 3)
                session.run(collections.UserDict(step=step))
                assert session.run(total) == 3.0

    def test_the_variable_that_an_assignment_returns_stands_for_it(self):
        with tf.Graph().as_default():
            total = tf.get_variable("total", initializer=0.0, use_resource=True)
            step = total.assign_add(1.0)
            with tf.Session() as session:
                session.run(total.initializer)
                iterations.repeat(session, step.op, lambda _: 3)
                session.run({"step": [step]})
                assert session.run(total) == 3.0


class TestFiles:
    def test_a_second_session_does_not_overwrite_the_firsts_dump(self, tmp_path):
        for value in (1.0, 2.0):
            with tf.Graph().as_default(), tf.Session(config=dumps(tmp_path, dump_layer="y")) as session:
                session.run(tf.add(value, 0.0, name="y"))
        means = [index(tmp_path / ("graph_%d" % n) / "step_0")[-1]["mean"] for n in (0, 1)]
        assert means == [1.0, 2.0]

    def test_nor_does_a_second_program(self, tmp_path):
        (tmp_path / "graph_0").mkdir()
        with tf.Graph().as_default(), tf.Session(config=dumps(tmp_path)) as session:
            session.run(tf.constant(1.0))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["graph_0", "graph_1"]
        assert not list((tmp_path / "graph_0").iterdir())

    def test_every_op_has_a_file_of_its_own(self):
        names = ["a/b", "a.b", "x" * 300, "x" * 299 + "y", "/".join("ab" * 200)]
        files = [dump.file_name(name, "output", 0) for name in names]
        assert len(set(files)) == len(names)
        assert max(map(len, files)) <= 240
        assert files[:2] == ["a.b.output_0.npy", "a%2Eb.output_0.npy"]

    def test_long_names_and_bfloat16(self, tmp_path):
        name = "/".join(["scope"] * 60)
        with tf.Graph().as_default(), tf.Session(config=dumps(tmp_path)) as session:
            session.run(tf.cast(tf.constant([1.5, -2.0]), tf.bfloat16, name=name))
        folder = tmp_path / "graph_0" / "step_0"
        [entry] = [tensor for tensor in index(folder) if tensor["op"] == name]
        assert entry["dtype"] == "bfloat16"
        written = np.load(str(folder / entry["file"]))
        assert (written.dtype, written.tolist()) == (np.float32, [1.5, -2.0])


class TestSessionsThatNobodyHolds:
    def test_the_run_of_a_session_that_is_dumped(self, tmp_path):
        with tf.Graph().as_default():
            y = tf.constant(1.0) + 1.0
            run = tf.Session(config=dumps(tmp_path)).run
            gc.collect()
            assert run(y) == 2.0
        assert list(tmp_path.iterdir())

    def test_the_run_of_a_session_that_repeats(self):
        with tf.Graph().as_default():
            total = tf.get_variable("total", initializer=0.0, use_resource=True)
            step = total.assign_add(1.0).op

            def build():
                session = tf.Session()
                session.run(total.initializer)
                iterations.repeat(session, step, lambda _: 3)
                return session.run

            run = build()
            gc.collect()
            run(step)
            assert run(total) == 3.0

    def test_a_watched_session_ends_with_its_last_user(self, tmp_path):
        with tf.Graph().as_default():
            session = tf.Session(config=dumps(tmp_path))
            session.run(tf.constant(1.0))
            seen = weakref.ref(session)
            del session
            assert seen() is None


def test_a_timeout_covers_all_steps_of_a_repeated_run():
    with tf.Graph().as_default():
        total = tf.get_variable("total", initializer=0, use_resource=True)
        slow = tf.py_func(lambda: time.sleep(0.05) or np.int32(1), [], tf.int32)
        step = total.assign_add(slow).op
        with tf.Session() as session:
            session.run(total.initializer)
            iterations.repeat(session, step, lambda _: 1000)
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(step, options=tf.RunOptions(timeout_in_ms=400))
            assert session.run(total) < 10


def test_two_sessions_are_profiled_at_a_time(tmp_path):  # train_and_evaluate's two sessions
    if profiling._profiler() is None:
        pytest.skip("this TensorFlow has no profiler to start")
    options = json.dumps({"output": str(tmp_path)})
    config = sessions.config(precision_mode="force_fp32", profiling_mode=True, profiling_options=options)
    with tf.Graph().as_default():
        y = tf.constant(1.0) * 2.0
        with tf.Session(config=config) as outer:
            with tf.Session(config=config) as inner:
                inner.run(y)
            assert not list(tmp_path.rglob("*.xplane.pb"))
            outer.run(y)
        assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
        with tf.Session(config=config) as third:
            third.run(y)
    assert not profiling._running


def trained_apart(exchanged, monkeypatch, of=2):
    said = []
    monkeypatch.setattr(ranks_apart, "lines", types.SimpleNamespace(once=said.append))
    monkeypatch.setattr(ranks_apart.ranks, "world_size", lambda: of)
    monkeypatch.setattr(ranks_apart.ranks, "world_rank", lambda: 1)
    with tf.Graph().as_default():
        x, w = tf.placeholder(tf.float32, [2]), tf.get_variable("w", [2])
        gradient = tf.gradients(tf.reduce_sum(x * w), w)[0]
        train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(exchanged(gradient), w)])
        session = types.SimpleNamespace(graph=tf.get_default_graph(), sess_str=b"")
        watch, once = ranks_apart._Watch(), lambda *_: None
        for fetches in (tf.global_variables_initializer(), w, train, train):
            watch(session, once, fetches, {x: [1.0, 2.0]}, None, None)
    return said


def reduced(gradient):
    return tf.raw_ops.CollectiveReduce(
        input=gradient, group_size=2, group_key=1, instance_key=1, merge_op="Add", final_op="Div", subdiv_offsets=[0]
    )


def test_ranks_that_exchange_nothing_are_told_once_at_the_first_step(monkeypatch):
    (line,) = trained_apart(tf.identity, monkeypatch)
    assert line.startswith("rank 1 of 2: the ranks train apart")
    assert trained_apart(reduced, monkeypatch) == []


def test_every_session_of_several_ranks_is_looked_at(monkeypatch):
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(ranks_apart, "attach", seen.append)
        with tf.Graph().as_default(), tf.Session() as session:
            assert seen == [session]
    watched = []
    monkeypatch.setattr(interceptors, "watch", lambda *given: watched.append(given))
    for size in (1, 2):
        monkeypatch.setattr(ranks_apart.ranks, "world_size", lambda: size)  # noqa: B023
        ranks_apart.attach(None)
    assert len(watched) == 1
