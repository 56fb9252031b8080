"""Dumps and the profiler: what the options of a session write."""

import json
import logging
import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.options.entrances import run_config
from npu_shim.options.entrances.run_config import NPURunConfig
from npu_shim.session.observers import attaching, dump, profiling

pytestmark = pytest.mark.usefixtures("patched")


def config(**values):
    strings = {name: value if isinstance(value, bool) else str(value) for name, value in values.items()}
    return sessions.config(**{"precision_mode": "force_fp32", **strings})


def index(folder, graph, step):
    with open(os.path.join(str(folder), "graph_%d" % graph, "step_%d" % step, "index.json")) as file:
        return {(tensor["op"], tensor["side"], tensor["number"]): tensor for tensor in json.load(file)}


def dumped_steps(folder):
    return sorted(os.path.join(*path.parts[-2:]) for path in folder.rglob("step_*"))


def test_chosen_steps_of_chosen_ops_are_written(tmp_path):
    options = config(enable_dump=True, dump_path=tmp_path, dump_step="1|3-4", dump_layer="double other")
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        x = tf.placeholder(tf.float32, [2], "x")
        y = tf.multiply(x, 2.0, name="double")
        tf.add(y, 1.0, name="plus")
        results = [session.run("plus:0", {x: [step, -step]}) for step in range(6)]
    assert [result.tolist() for result in results] == [[2.0 * s + 1, -2.0 * s + 1] for s in range(6)]
    assert dumped_steps(tmp_path) == ["graph_0/step_1", "graph_0/step_3", "graph_0/step_4"]
    entry = index(tmp_path, 0, 3)
    assert list(entry) == [("double/y", "output", 0), ("double", "output", 0)]
    written = np.load(str(tmp_path / "graph_0" / "step_3" / entry["double", "output", 0]["file"]))
    assert written.tolist() == [6.0, -6.0]
    assert entry["double", "output", 0]["max"] == 6.0


@pytest.mark.parametrize("mode", ["input", "output", "all"])
def test_dump_mode_chooses_the_side(tmp_path, mode):
    sides = {"input", "output"} if mode == "all" else {mode}
    options = config(enable_dump=True, dump_path=tmp_path, dump_mode=mode, dump_layer="net")
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        with tf.name_scope("net"):
            y = tf.square(tf.constant([3.0], name="c"), name="square")
        session.run(y)
    entries = index(tmp_path, 0, 0)
    assert {side for _, side, _ in entries} == sides
    assert {op for op, _, _ in entries} <= {"net/square", "net/c"}


def test_statistics_without_values(tmp_path):
    options = config(enable_dump=True, dump_path=tmp_path, dump_data="stats")
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        session.run(tf.constant([1.0, np.inf, 3.0], name="c"))
    entry = index(tmp_path, 0, 0)["c", "output", 0]
    assert (entry["mean"], entry["not_finite"], entry["shape"]) == (2.0, 1, [3])
    assert not list(tmp_path.rglob("*.npy"))


def test_each_set_of_fetches_counts_its_own_steps(tmp_path):
    options = config(enable_dump=True, dump_path=tmp_path, dump_data="stats")
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
        for fetch in (a, b, a, {"b": b}):
            session.run(fetch)
    assert dumped_steps(tmp_path) == ["graph_%d/step_%d" % pair for pair in ((0, 0), (0, 1), (1, 0), (1, 1))]


def test_training_is_the_same_with_a_dump(tmp_path):
    def trained(options):
        with tf.Graph().as_default():
            x = tf.constant(np.linspace(-1, 1, 16, dtype=np.float32).reshape(16, 1))
            first = tf.get_variable("first", initializer=np.linspace(-1, 2, 8, dtype=np.float32).reshape(1, 8))
            second = tf.get_variable("second", initializer=np.linspace(2, -1, 8, dtype=np.float32).reshape(8, 1))
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, first)), second) - 3 * x))
            step = tf.train.get_or_create_global_step()
            train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
            hooks = [tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=2), tf.train.StepCounterHook(2)]
            with tf.train.MonitoredTrainingSession(config=options, hooks=hooks) as session:
                return [session.run([train, loss])[1] for _ in range(5)]

    assert trained(config(enable_dump=True, dump_path=tmp_path)) == trained(config())
    assert list(tmp_path.rglob("*.npy"))


def test_what_is_inside_of_loops_and_branches_is_left_out(tmp_path):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], "x")
        branch = tf.cond(x > 0, lambda: x * 2.0, lambda: x * 3.0)
        loop = tf.while_loop(lambda i: i < 10.0, lambda i: i + branch, [branch])
        with tf.Session(config=config(enable_dump=True, enable_dump_debug=True, dump_path=tmp_path)) as session:
            assert session.run(loop, {x: 4.0}) == 16.0
            assert session.run(branch, {x: -4.0}) == -12.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dump_path": "/no/such/folder"}, "dump_path='/no/such/folder' must be a folder"),
        ({}, "dump_path=None must be a folder"),
        ({"dump_path": ".", "dump_step": "1-x"}, "dump_step='1-x' is not of the form"),
        ({"dump_path": ".", "dump_step": "|".join(["1"] * 101)}, "has 101 parts"),
    ],
)
def test_wrong_options_are_the_sessions_internal_error(options, words):
    with tf.Graph().as_default(), tf.Session(config=config(enable_dump=True, **options)) as session:
        x = tf.constant(1.0)
        with pytest.raises(tf.errors.InternalError, match=words):
            session.run(x)


def conv():
    x = tf.placeholder_with_default(np.full([1, 8, 8, 4], 100.0, np.float32), [1, 8, 8, 4])
    weights = tf.constant(np.full([3, 3, 4, 2], 30.0, np.float32))
    return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, weights, 1, "SAME", name="planted"))), "Conv2D", (30.0, 100.0)


def matmul():
    x = tf.placeholder_with_default(np.full([4, 64], 50.0, np.float32), [4, 64])
    return tf.reduce_sum(tf.tanh(tf.matmul(x, tf.fill([64, 8], 40.0), name="planted"))), "MatMul", (40.0, 50.0)


def exp():
    x = tf.placeholder_with_default(np.full([4], 12.0, np.float32), [4])
    return tf.reduce_sum(1.0 / (1.0 + tf.exp(x * 1.0, name="planted"))), "Exp", (12.0, 12.0)


@pytest.mark.parametrize("graph", [conv, matmul, exp])
def test_the_planted_float16_overflow_is_found_and_named(tmp_path, caplog, graph):
    mode = "force_fp16"
    with tf.Graph().as_default(), caplog.at_level(logging.WARNING, logger="npu_shim"):
        loss, kind, (low, high) = graph()
        logging.getLogger("npu_shim").propagate = True
        with tf.Session(config=config(precision_mode=mode, enable_dump_debug=True, dump_path=tmp_path)) as session:
            session.run(loss)
        with tf.Session(config=config(enable_dump_debug=True, dump_path=tmp_path / "..")) as session:
            session.run(loss)
    reports = list(tmp_path.rglob("overflow.json"))
    assert len(reports) == 1
    report = json.loads(reports[0].read_text())
    assert (report["op"], report["type"]) == ("planted", kind)
    assert report["outputs"][0]["not_finite"] > 0
    known = [tensor for tensor in report["inputs"] if tensor["not_finite"] == 0]
    assert known
    assert all(low <= tensor["min"] <= tensor["max"] <= high for tensor in known)
    assert "overflow begins in %s 'planted'" % kind in caplog.text


def test_an_infinite_constant_is_no_overflow():
    with tf.Graph().as_default() as graph:
        mask = tf.constant([-np.inf, 0.0])
        tf.nn.softmax(mask, name="softmax")
        arrays = {"Const:0": np.array([-np.inf, 0.0]), "softmax:0": np.array([0.0, 1.0])}
        assert dump.first_overflow(graph.get_operations(), arrays) is None


def test_a_variable_that_the_step_has_written_is_no_origin():
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [2], use_resource=False)
        tf.multiply(v, 1e30, name="product")
    nan = np.array([np.nan, 1.0])
    arrays = {"v/read:0": nan, "product/y:0": np.float32(1e30), "product:0": np.array([np.inf, 1.0])}
    assert dump.first_overflow(graph.get_operations(), arrays).name == "product"


def test_an_infinity_that_nobody_has_read_is_no_overflow():  # TensorFlow sums Square(x), which stays float32
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], "x")
        tf.reduce_sum(tf.multiply(x, x, name="square"), name="sum")
        tf.tanh(tf.multiply(x, 2.0, name="double"), name="tanh")
    operations, inf = graph.get_operations(), np.array([np.inf, 1.0])
    arrays = {"x:0": np.array([300.0, 1.0]), "square:0": inf, "sum:0": np.float32(90001)}
    assert dump.first_overflow(operations, arrays) is None
    assert dump.first_overflow(operations, {**arrays, "sum:0": np.float32(np.inf)}).name == "square"
    absorbed = {**arrays, "double:0": inf, "tanh:0": np.ones(2)}
    assert dump.first_overflow(operations, absorbed).name == "double"


def test_options_without_effect_are_logged_once(caplog):
    attaching._log_once.cache_clear()
    options = config(hcom_parallel=False, buffer_optimize="off_optimize", enable_dump=False, use_off_line=True)
    logging.getLogger("npu_shim").propagate = True
    with caplog.at_level(logging.INFO, logger="npu_shim"), tf.Graph().as_default():
        for _ in range(2):
            tf.Session(config=options).close()
    logged = sorted(record.args for record in caplog.records if "no effect here" in record.msg)
    assert logged == [("buffer_optimize",), ("hcom_parallel",)]


def test_what_npu_run_config_has_by_itself_is_not_set_by_anybody():
    assert attaching.without_effect(run_config.values_of(NPURunConfig())) == []
    given = NPURunConfig(hcom_multi_mode=True, buffer_optimize="off_optimize")
    assert set(attaching.without_effect(run_config.values_of(given))) == {"hcom_multi_mode", "buffer_optimize"}


def test_profiling_mode_writes_a_profile(tmp_path):
    if profiling._profiler() is None:
        pytest.skip("this TensorFlow has no profiler to start")
    options = config(profiling_mode=True, profiling_options=json.dumps({"output": str(tmp_path), "task_trace": "on"}))
    with tf.Graph().as_default(), tf.Session(config=options) as session:
        session.run(tf.matmul(tf.ones([64, 64]), tf.ones([64, 64])))
    assert list(tmp_path.rglob("*.xplane.pb"))
    with tf.Graph().as_default(), pytest.raises(tf.errors.InternalError, match="must be JSON with"):
        tf.Session(config=config(profiling_mode=True, profiling_options="{}"))
