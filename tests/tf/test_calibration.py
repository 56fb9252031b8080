"""Calibration: what it measures is what numpy says of the same tensors, whatever starts the runs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
import npu_shim
from npu_shim import cli
from npu_shim.loss_scale import automatic
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.tables.dtypes import INFINITE_FROM, ZERO_UP_TO
from npu_shim.session.interception import training
from npu_shim.session.observers import calibration, dump, measures
from npu_shim.session.observers.ranges import Range, as_text, of_json, proposals


def build():
    """A step whose tensors leave float16 on both sides; returns (what trains, names of measured tensors)."""
    x = tf.placeholder(tf.float32, [None, 4], "x")
    w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(np.arange(16).reshape(4, 4) / 8.0))
    y = tf.matmul(x, w, name="y")
    big, tiny = tf.multiply(y, 1e5, name="big"), tf.multiply(y, 1e-8, name="tiny")
    odd = tf.log(y - 1.0, name="odd")  # not a number below 1, -inf at 1
    healthy = tf.where(tf.math.is_finite(odd), odd, tf.zeros_like(odd))
    loss = tf.reduce_mean(big + tiny + healthy, name="loss")
    return tf.train.GradientDescentOptimizer(1e-6).minimize(loss), ["y:0", "big:0", "tiny:0", "odd:0", "loss:0"]


def feeds(step):
    return {"x:0": np.random.RandomState(step).randint(-2, 3, [3, 4]).astype(np.float32)}


def expected(values):
    """What numpy says of a tensor's values over several steps: largest, smallest and the counts."""
    values = np.abs(np.concatenate([np.ravel(value) for value in values]))
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    counts = [values.size, (values >= INFINITE_FROM).sum(), ((values > 0) & (values <= ZERO_UP_TO)).sum()]
    smallest = positive.min() if positive.size else np.inf
    return [finite.max(), smallest, *map(int, counts), int((~np.isfinite(values)).sum())]


def measured(one):
    return [np.float32(one.largest), np.float32(one.smallest), one.values, one.beyond, one.below, one.nonfinite]


@pytest.mark.parametrize("group", [64, 3])
def test_ranges_are_those_of_numpy_exactly(group, monkeypatch):
    monkeypatch.setattr(calibration, "GROUP", group)
    steps = 40
    with tf.Graph().as_default():
        train, names = build()
        hook = npu_shim.Calibration(steps=steps)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            fetched = [session.run([train, names], feeds(step))[1] for step in range(steps + 2)]
            assert session.graph.finalized
        for number, name in enumerate(names):
            one = hook.ranges[name]
            assert one.steps == steps if group == 64 else 1 <= one.steps < steps
            if group == 64:
                assert measured(one) == expected([values[number] for values in fetched[:steps]])
    groups = -(-len(hook.ranges) // group)
    assert min(one.steps for one in hook.ranges.values()) == steps // groups
    assert hook.ranges["odd:0"].first_nonfinite == 1 or group == 3
    assert "odd:0" in hook.as_text().partition("what to change:")[2]


ODD = [0.0, -0.0, 1e-45, -1e-45, 2.0**-25, np.nextafter(np.float32(2.0**-25), np.float32(1)), 2.0**-24, 1.0, -65519.99,
       65520.0, -3e38, np.inf, -np.inf, np.nan, -np.nan]  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 7, 40000, 200003])  # whole vectors and shards, and what is left behind them
def test_one_op_of_the_hook_measures_in_place_of_ordinary_ones(patched, count):
    values = np.random.RandomState(count).standard_cauchy(count).astype(np.float32)
    values[::3] *= 1e-9
    values[-len(ODD) :] = ODD[:count]
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], "x")
        measured_op = tf.identity(measures.of(x, measures.limits()))
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            ran = sessions.Ran(session, measured_op, {x: values})
        assert [node.op for node in ran.nodes].count(measures.OP) == 1
        assert not {"Abs", "Max", "Min", "IsFinite"} & {node.op for node in ran.nodes}
    actual = ran.values
    if count:
        assert actual.tolist() == [float(number) for number in expected([values])]
    else:
        assert actual.tolist() == [0.0, np.inf, 0, 0, 0, 0]


@pytest.mark.parametrize("ours", [True, False])
def test_a_tensor_whose_static_shape_is_not_its_own(patched, ours):
    """The reserved results of FusedBatchNormGradV3 are scalars in the kernel, and empty in the graph."""
    with tf.Graph().as_default():
        x = tf.get_variable("x", [2, 4, 4, 3])
        y, *_ = tf.nn.fused_batch_norm(x, tf.ones([3]), tf.zeros([3]))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(y - 1.0)))
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision") if ours else None) as session:
            session.run(tf.global_variables_initializer())
            calibrated = npu_shim.calibrate(session, train, steps=2)
    assert [name for name in calibrated.ranges if "FusedBatchNormGradV3:3" in name]


def test_ordinary_ops_that_grappler_has_changed_stay():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4])
        tf.identity(measures.of(tf.abs(x, name="own") * 2.0, measures.limits()), name="out")
    graph_def = graph.as_graph_def()
    (last,) = [node.name for node in graph_def.node if measures.MARK in node.attr]
    assert {node.name: node.op for node in graphs.after(measures.fuse, graph_def, ["out"]).node}[last] == measures.OP
    (first,) = [node for node in graph_def.node if node.op == "Abs" and node.name != "own"]
    first.op = "_UnaryOpsComposition"
    assert {node.name: node.op for node in graphs.after(measures.fuse, graph_def, ["out"]).node}[last] == "ConcatV2"


def test_tensors_of_other_devices_and_other_processes_keep_the_ordinary_ops():
    with tf.Graph().as_default() as graph:
        tf.identity(measures.of(tf.placeholder(tf.float32, [4]), measures.limits()), name="out")
    graph_def = graph.as_graph_def()
    assert graphs.after(measures.fuse, graph_def, ["out"], "GPU") is graph_def
    for node in graph_def.node:
        node.device = "/job:ps/task:0/device:CPU:0"
    assert graphs.after(measures.fuse, graph_def, ["out"]) is graph_def


def test_a_session_in_low_precision_is_measured_as_it_flows(patched, tmp_path, monkeypatch):
    monkeypatch.setenv(calibration.SWITCH, "3")
    monkeypatch.setenv(calibration.FOLDER, str(tmp_path))
    monkeypatch.setattr(calibration, "_recorders", {})
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [1, 1], "x")
        w = tf.get_variable("w", [1, 1], initializer=tf.ones_initializer())
        product = tf.matmul(x, w, name="product")
        train = tf.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(product))
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(tf.global_variables_initializer())
            run = session.make_callable([train, product], feed_list=[x])
            assert [run([[2049.0]])[1][0, 0] for _ in range(4)] == [2048.0] * 4
        (recorder,) = calibration._recorders.values()
        assert recorder.steps == 3
        assert recorder.measured["product:0"].largest == 2048.0
        assert graph.finalized is False
    calibration.write_all(str(tmp_path))
    (path,) = tmp_path.iterdir()
    rows = json.loads(path.read_text())["tensors"]
    assert of_json(next(row for row in rows if row["tensor"] == "product:0")) == recorder.measured["product:0"]


def test_a_loss_scale_that_only_a_branch_reads_is_not_fetched():
    """A branch that is not taken has no value: the run failed with "Retval[1] does not have value"."""
    with tf.Graph().as_default() as graph:
        scale = tf.get_variable("loss_scale", [], trainable=False, initializer=tf.ones_initializer(), use_resource=True)
        read = tf.cond(tf.placeholder(tf.bool, []), lambda: scale.read_value(), lambda: 1.0)
        assert training.loss_scale(dump.upstream(graph, [read.op], ())) is None
        assert training.loss_scale(dump.upstream(graph, [scale.read_value().op], ())) is not None


@pytest.mark.parametrize("scale", ["auto", 8.0])
def test_the_automatic_loss_scale_of_a_step_is_found(scale):
    """It is read in a branch, which says whether it has a value yet."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        automatic.install(scale)
        train, _ = build()
        automatic.uninstall()
        other = tf.constant(3.0)
        session.run(tf.global_variables_initializer())
        read = training.loss_scale(dump.upstream(graph, [train], ()))
        assert session.run(read) == (2.0**15 if scale == "auto" else scale)
        assert training.loss_scale(dump.upstream(graph, [other.op], ())) is None


def test_ops_of_the_automatic_loss_scale_are_not_measured():
    with tf.Graph().as_default(), tf.Session() as session:
        automatic.install("auto")
        train, names = build()
        automatic.uninstall()
        session.run(tf.global_variables_initializer())
        ranges = npu_shim.calibrate(session, train, [feeds(0)], steps=1).ranges
    assert {"y:0", "big:0"} < {*names} & {*ranges}
    assert [name for name in ranges if "npu_shim" in name] == []


def test_gradients_of_a_conditional_are_not_measured(control_flow_of_version_1):
    """They have no control-flow context, and no value where the branch is not taken (BERT's dropout in a tf.cond)."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        taken = tf.placeholder(tf.bool, [], "taken")
        w = tf.get_variable("w", [4, 4])
        y = tf.matmul(x, w, name="y")
        z = tf.cond(taken, lambda: tf.where(y > 0, 2.0 * y, y), lambda: y)
        loss = tf.reduce_mean(tf.square(z), name="loss")
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        hook = npu_shim.Calibration(steps=4)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            for number in range(4):
                session.run([train, loss], {"x:0": np.ones([2, 4]), "taken:0": number % 2 == 0})
        types = {graph.get_operation_by_name(name[:-2]).type for name in hook.ranges}
    assert {"y:0", "loss:0", "gradients/y_grad/MatMul_1:0"} <= set(hook.ranges)
    assert hook.ranges["loss:0"].steps == 4
    assert "Switch" not in types


def test_an_optimizer_that_assigns_is_training_and_what_initializes_is_not():
    """BERT's own optimizer assigns the next value to each variable; calibration measured none of its steps."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        w = tf.get_variable("w", [4, 1])
        (gradient,) = tf.gradients(tf.reduce_mean(tf.matmul(x, w)), w)
        steps = [w.assign(w - 0.1 * gradient).op, w.assign_sub(0.1 * gradient).op]
        mean = tf.get_variable("mean", [], trainable=False)
        others = [w.initializer, mean.assign_sub(0.1 * (mean - tf.reduce_mean(x))).op]
        for op, expected in [*((op, 1) for op in steps), *((op, 0) for op in others)]:
            assert len(training.updates(dump.upstream(graph, [op], ()))) == expected


@pytest.mark.parametrize("several", [True, False])
def test_calibrate_runs_the_steps_of_a_session(several):
    with tf.Graph().as_default(), tf.Session() as session:
        train, names = build()
        session.run(tf.global_variables_initializer())
        given = (feeds(step) for step in range(3)) if several else feeds(0)
        calibrated = npu_shim.calibrate(session, [train, "loss:0"], given, **({} if several else {"steps": 4}))
        assert set(names) <= set(calibrated.ranges)
        assert {one.steps for one in calibrated.ranges.values()} == {3 if several else 4}
        assert calibrated.as_text().startswith("%d steps, " % (3 if several else 4))


@pytest.mark.parametrize(("fetches", "given", "steps", "said"), [
    ("y:0", {"x:0": np.ones([2, 4])}, 1, "fetches is 'y:0', which trains nothing"),
    (None, [], None, "feeds is empty, expected a feed_dict for each step"),
    (None, [{"x:0": np.ones([2, 4])}, 5], 2, "feeds has 5 for step 2, expected a feed_dict"),
    (None, 5, 2, "feeds is 5, expected a feed_dict or an iterable of them"),
    (None, {}, 0, "steps is 0, expected a number of steps, 1 or more"),
])  # fmt: skip
def test_calibrate_says_what_it_expects(fetches, given, steps, said):
    with tf.Graph().as_default(), tf.Session() as session:
        train, _ = build()
        session.run(tf.global_variables_initializer())
        with pytest.raises(ConfigError, match=said):
            npu_shim.calibrate(session, fetches or train, given, steps)


def test_calibrate_needs_a_session():
    with pytest.raises(ConfigError, match=r"session is 5, expected a tf\.Session or MonitoredSession"):
        npu_shim.calibrate(5, "train")


@pytest.mark.parametrize("steps", [0, -1, "x", 2.5, None])
def test_a_number_of_steps_that_is_none(steps):
    with pytest.raises(ConfigError, match="expected a number of steps, 1 or more"):
        npu_shim.Calibration(steps=steps)


@pytest.mark.parametrize("word", ["0", "-1", "many", ""])
def test_the_command_says_what_it_expects(word, tmp_path, capsys):
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    assert cli.main(["run", "--calibrate", word, str(tmp_path / "script.py")]) == 2
    assert "--calibrate is '%s', expected a number of training steps, 1 or more" % word in capsys.readouterr().err


def test_proposals_name_the_first_node_and_a_loss_scale_that_fits():
    whole = Range("a:0", "MatMul", "float32", "a::line", steps=1, largest=1.0, smallest=0.5, values=4)
    bad = Range("b:0", "Exp", "float32", "b::line", 1, 2.0, 1.0, 4, 4, 0, 4, first_nonfinite=2, turn=2)
    worse = Range("c:0", "Mul", "float32", "c::line", 1, 2.0, 1.0, 4, 4, 0, 4, first_nonfinite=3, turn=1)
    high = Range("d:0", "Square", "float32", "d::line", 1, 1e6, 1.0, 4, 2, 0, 0)
    gradient = Range("gradients/x:0", "Mul", "float32", "", 1, 2.0**-14, 1e-9, 100, 0, 10, 0)
    largest = Range("gradients/y:0", "Mul", "float32", "", 1, 2.0**-6, 1e-9, 100, 0, 90, 0)
    assert proposals([whole], None) == []
    first, second = proposals([whole, bad, worse, high], None)
    assert first == "c:0 is the first that is not finite; to keep it in float32: c::line"
    assert second == "d:0 would be infinite where it is lowered; to keep it in float32: d::line"
    read = Range("a/read:0", "Identity", "float32", "", 1, 2.0, 1.0, 4, 4, 0, 4, first_nonfinite=1, turn=1)
    assert proposals([read, worse], None)[0] == first  # the step may have written before it was read
    assert proposals([largest], None) == []  # as of a softmax: 0.01 for the label, next to nothing for the others
    (scaled,) = proposals([gradient, largest], (8.0, 16.0))
    assert scaled.startswith("1 gradients have no value above 6.1e-05")
    assert scaled.endswith("a loss scale 65536 times larger (now 16) keeps more of them")  # 65520 / 2^-6 / 2^5
    largest.largest = 4096.0
    assert proposals([gradient, largest], None) == []  # the other may be what float32 leaves of a sum that cancels
    assert as_text([whole], 1, (8.0, 8.0), 2).startswith("1 steps, 1 tensors measured, 2 in loops or branches left out")


SCRIPT = """
import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *
x = tf.placeholder(tf.float32, [None, 4], "x")
w = tf.get_variable("w", [4, 4])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w, name="product")), name="loss")
manager = FixedLossScaleManager(loss_scale=8)
train = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager).minimize(loss)
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for step in range(4):
        session.run([loss, train], {x: np.ones([2, 4])})
raise ValueError("the script's own fault")
"""
FORKED = """
import multiprocessing
def work():
    exec(open("script.py").read())
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
"""


@pytest.mark.nightly
def test_what_a_forked_process_measured_is_told(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "forked.py").write_text(FORKED)
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", "run", "--calibrate", "2", "forked.py"], cwd=str(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}, check=False,
    )  # fmt: skip
    assert "2 steps, " in done.stdout
    assert "no training step was measured" not in done.stdout


def test_a_run_tells_its_ranges_and_joins_them_to_its_report(tmp_path):
    pytest.importorskip("plotly", reason="the report's treemap needs plotly")
    from test_plan_page import data_of

    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", "run", "--calibrate", "2", "--report", "out.html", "script.py"],
        cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the script's own fault" in done.stdout
    assert "2 steps, " in done.stdout
    assert "loss scale 8" in done.stdout
    rows = {row["tensor"]: row for page in data_of(tmp_path / "out.html") for row in page["ranges"]}
    assert rows["product:0"]["steps"] == 2
    assert rows["product:0"]["values"] == 2 * 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "script.py"]


def test_loops_and_branches_of_an_imported_graph_are_left_out(patched):
    """A GraphDef does not say which ops are inside, and a tensor from inside cannot be fetched."""
    with sessions.control_flow(1), tf.Graph().as_default() as built:
        w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
        x = tf.ones([2, 4])
        _, y = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, tf.tanh(tf.matmul(y, w))), [0, x])
        z = tf.cond(tf.reduce_sum(y) > 0.0, lambda: y * 2.0, lambda: y * 3.0)
        step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(z)), name="step")
        init = tf.global_variables_initializer().name
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(built.as_graph_def(), name="")
        recorder = calibration.Recorder(graph, 9)
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(init)
            for _ in range(3):
                group = recorder.next_group(step.name, ())
                recorder.add(group, session.run([step.name, group.fetches])[1])
    assert recorder.left_out > 10
    assert {"while/Exit_1:0", "cond/Merge:0"} <= set(recorder.measured)
    assert not {"while/Tanh:0", "cond/mul:0"} & set(recorder.measured)
