"""npu-shim export: a step as a folder, and the same losses from it under JAX, where no TensorFlow is."""

import functools
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import cli, pjrt
from npu_shim.export import checkpoint, export, state_roles
from npu_shim.options import engine
from npu_shim.pjrt import manifest
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.xla import step_function

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIX = {"precision_mode": "allow_mix_precision"}
MIXED = ("digits", "lstm")  # the models that are also tried in mixed precision
STEPS = 3
# the program's sums are in another order than the session's kernels'; a step's loss is about 1
CLOSE = functools.partial(np.testing.assert_allclose, rtol=1e-6)

# test_export_apart has the way through another interpreter
pytestmark = pytest.mark.skipif(not engine.has_jax(), reason="JAX is not beside this TensorFlow")


def digits():
    """A graph that trains on the digits with momentum, and a counter: (graph, feeds)."""
    with np.load(str(ROOT / "scripts" / "data" / "digits.npz")) as data:
        names = sorted(data.files, key=lambda name: data[name].size)
        images = data[names[-1]][:64].reshape(64, -1).astype(np.float32) / 16
    labels = np.arange(64, dtype=np.int32) % 10
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(3)
        x = tf.placeholder(tf.float32, [None, images.shape[1]], "x")
        y = tf.placeholder(tf.int32, [None], "y")
        hidden = tf.nn.relu(_dense(x, 32, "hidden"))
        logits = _dense(hidden, 10, "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        step = tf.Variable(0, trainable=False, name="global_step", dtype=tf.int64, use_resource=True)
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step, name="train")
        tf.global_variables_initializer()
        tf.train.Saver(name="save")
    return graph, {"x:0": images, "y:0": labels}


def _dense(x, units, name):
    with tf.variable_scope(name):
        initializer = tf.random_normal_initializer(0.0, 0.1)
        w = tf.get_variable("kernel", [x.shape[-1], units], initializer=initializer, use_resource=True)
        b = tf.get_variable("bias", [units], initializer=tf.zeros_initializer(), use_resource=True)
        return tf.matmul(x, w) + b


@pytest.fixture
def session():
    graph, feeds = digits()
    with tf.Session(graph=graph) as session:
        session.run("init")
        yield session, feeds


def shapes(feeds):
    return {name: value.shape for name, value in feeds.items()}


FETCHES = ["loss:0", "train"]


def test_the_manifest_says_what_goes_in_and_out(session, tmp_path):
    script, feeds = session
    written = export(script, FETCHES, shapes(feeds), str(tmp_path / "step"), **MIX)
    assert [(t.name, t.shape, t.dtype) for t in written.feeds] == [
        ("x:0", feeds["x:0"].shape, "float32"), ("y:0", (64,), "int32")
    ]  # fmt: skip
    roles = {t.name: (t.dtype, t.role) for t in written.state}
    assert roles["hidden/kernel"] == ("float32", "parameter")
    assert roles["hidden/kernel/Momentum"] == ("float32", "optimizer")
    assert roles["global_step"] == ("int64", "other")
    assert [t.name for t in written.results if t.kind == "fetch"] == ["loss:0"]
    assert written.donated == set(roles)
    assert written.options == MIX
    assert written.plan["lowered"] > 0
    assert sum(written.plan["reasons"].values()) == written.plan["slots"]
    assert written.versions["tensorflow"] == tf.__version__
    assert manifest.read(str(tmp_path / "step")) == written


def test_a_step_with_a_single_result(tmp_path):
    """XLA gives one value as it is, several as a tuple: a step that is only run updates its one variable."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer(), use_resource=True)
        tf.group(w.assign_sub(0.5 * tf.placeholder(tf.float32, [2], "x")), name="train")
        session.run(tf.global_variables_initializer())
        written = export(session, ["train"], {"x:0": (2,)}, str(tmp_path / "step"))
    assert [(t.kind, t.name, t.shape) for t in written.results] == [("state", "w", (2,))]
    program = pjrt.load(str(tmp_path / "step"), "cpu")
    program.run({"x:0": [1.0, 2.0]})
    assert program.state()["w"].tolist() == [0.5, 0.0]


def test_values_are_the_sessions(session, tmp_path):
    script, feeds = session
    script.run(FETCHES, feeds)
    written = export(script, FETCHES, shapes(feeds), str(tmp_path / "step"))
    state = manifest.state(str(tmp_path / "step"), written)
    assert state["global_step"] == 1
    with script.graph.as_default():
        np.testing.assert_array_equal(state["hidden/kernel"], script.run("hidden/kernel/Read/ReadVariableOp:0"))


def test_saved_state_becomes_a_checkpoint(session, tmp_path):
    script, feeds = session
    export(script, FETCHES, shapes(feeds), str(tmp_path / "step"))
    loss = script.run("loss:0", feeds)
    checkpoint(str(tmp_path / "step" / manifest.STATE), str(tmp_path / "model"))
    script.run("init")
    with script.graph.as_default():
        tf.train.Saver().restore(script, str(tmp_path / "model"))
    assert script.run("loss:0", feeds) == loss


def test_variables_without_values_are_not_exported_as_zeros(session, tmp_path):
    script, feeds = session
    with pytest.raises(npu_shim.ConfigError, match=r"no value is given for variable 'hidden/bias' \(did you mean"):
        export(script.graph, FETCHES, shapes(feeds), str(tmp_path / "step"), values={"hidden/bias_": np.zeros(3)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("use_resource", [True, False])
def test_parts_of_variables_become_slices_of_a_checkpoint(use_resource, tmp_path):
    parts = tf.fixed_size_partitioner(2)
    with tf.Graph().as_default(), tf.Session() as session:
        start = tf.random_uniform_initializer(seed=1)
        w = tf.get_variable("w", [5, 2], initializer=start, partitioner=parts, use_resource=use_resource)
        loss = tf.reduce_sum(tf.square(tf.convert_to_tensor(w)), name="loss")
        tf.train.MomentumOptimizer(0.25, 0.5).minimize(loss, name="train")
        session.run(tf.global_variables_initializer())
        before = session.run(tf.convert_to_tensor(w))
        written = export(session, FETCHES, {}, str(tmp_path / "step"))
        assert written.slices["w/part_1"] == ["w", "5 2 3,2:0,2"]
        assert "npu_shim/slices" not in manifest.state(str(tmp_path / "step"), written)
        checkpoint(str(tmp_path / "step" / manifest.STATE), str(tmp_path / "model"))
        session.run(tf.global_variables_initializer())
        session.run("train")
        tf.train.Saver().restore(session, str(tmp_path / "model"))
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), before)
    assert set(tf.train.load_checkpoint(str(tmp_path / "model")).get_variable_to_shape_map()) == {"w", "w/Momentum"}


def test_the_program_names_no_sources(session, tmp_path):
    script, feeds = session
    written = export(script, FETCHES, shapes(feeds), str(tmp_path / "step"))
    program = manifest.program(str(tmp_path / "step"), written)
    assert b"StableHLO_v1.0.0" in program[:40]  # which older releases of JAX read, too
    for name in ("site-packages", "npu_shim", os.path.basename(__file__)):
        assert name.encode() not in program
    assert b"jit(step)/hidden/MatMul/dot_general" in program  # but the ops of the graph


def test_the_same_step_is_the_same_bytes(tmp_path):
    for name in ("one", "other"):
        graph, feeds = digits()
        export(graph, FETCHES, shapes(feeds), str(tmp_path / name))
    files = [path.name for path in (tmp_path / "one").iterdir()]
    assert sorted(files) == ["manifest.json", "program.stablehlo"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_float32_products_of_highest_precision(session, tmp_path):
    script, feeds = session
    programs = []
    for products in ("default", "highest"):
        folder = str(tmp_path / products)
        programs.append(manifest.program(
            folder, export(script, FETCHES, shapes(feeds), folder, float32_products=products)
        ))  # fmt: skip
    assert programs[0] != programs[1]
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    with pytest.raises(ConfigError, match="float32_products is 'high', expected one of default, highest"):
        export(script, FETCHES, shapes(feeds), str(tmp_path / "c"), float32_products="high")


def test_what_cannot_be_exported_leaves_nothing(session, tmp_path):
    script, feeds = session
    with pytest.raises(ConfigError, match=r"feed 'x:0'"):
        export(script, FETCHES, ["x:0", "y:0"], str(tmp_path / "step"))
    with pytest.raises(ConfigError, match="'los:0' is not in the graph"):
        export(script, ["los:0"], shapes(feeds), str(tmp_path / "step"))
    with script.graph.as_default():
        text = tf.strings.as_string(script.graph.get_tensor_by_name("loss:0"), name="text")
        tf.strings.to_number(text, name="number")
    with pytest.raises(PlanError, match=r"node 'text' \(AsString\): this op has no rule"):
        export(script, ["number:0"], shapes(feeds), str(tmp_path / "step"))
    with pytest.raises(ConfigError, match=r"'/bin/false' does not lower the step|cannot be run"):
        export(script, FETCHES, shapes(feeds), str(tmp_path / "step"), jax="/bin/false")
    assert not list(tmp_path.iterdir())


def test_a_result_whose_rows_only_the_data_count_is_not_exported(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [6], "x")
        tf.identity(tf.boolean_mask(x, x > 0), name="some")
    with pytest.raises(npu_shim.PlanError, match="'some:0' has a number of rows that depends on the data"):
        export(graph, "some:0", ["x"], str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_without_jax_the_error_says_where_to_get_it(session, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "has_jax", bool)
    monkeypatch.setattr(engine, "interpreter", lambda: None)
    with pytest.raises(ConfigError, match=r"of a step needs JAX: beside TensorFlow .* npu-shim engine install, or N"):
        export(session[0], FETCHES, shapes(session[1]), str(tmp_path / "step"))
    assert not list(tmp_path.iterdir())


def test_a_value_that_must_be_known_is_asked_for_as_a_constant(tmp_path):
    with tf.Graph().as_default() as graph:
        lengths = tf.placeholder(tf.int32, [3], "lengths")
        tf.reduce_sum(tf.cast(tf.sequence_mask(lengths), tf.float32), name="count")
    with pytest.raises(PlanError, match=r"of feed 'lengths:0'; give its value in constants \(--constant\)"):
        export(graph, "count:0", ["lengths"], str(tmp_path / "step"))
    assert not list(tmp_path.iterdir())
    export(graph, "count:0", [], str(tmp_path / "step"), constants={"lengths:0": [1, 4, 2]})
    assert pjrt.load(str(tmp_path / "step"), "cpu").run({})["count:0"] == 7


def test_a_program_that_a_cpu_would_not_run_is_written_for_both(tmp_path):
    """Some ops are functions of one kind of device: cuSOLVER's on a GPU and LAPACK's on a CPU."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        tf.identity(tf.linalg.solve(x, tf.cumsum(x)), name="y")
    for device, files in ((None, 2), ("GPU", 2), ("CPU", 1)):
        out = tmp_path / str(device)
        export(graph, "y:0", ["x"], str(out), device=device)
        assert len(list(out.glob("*.stablehlo"))) == files
        given = np.float32([[1, 2], [3, 5]])
        expected = np.linalg.solve(given, np.cumsum(given, 0))
        np.testing.assert_allclose(pjrt.load(str(out), "cpu").run({"x": given})["y:0"], expected, rtol=1e-5)


def test_roles_by_name_and_shape():
    given = {"w": (3, 4), "w/Adam": (3, 4), "training/w/m": (3, 4), "w/mean": (4,), "step": (), "beta1_power": (1,)}
    assert state_roles(given) == {
        "w": "parameter", "w/Adam": "optimizer", "training/w/m": "optimizer", "w/mean": "parameter",
        "step": "other", "beta1_power": "other",
    }  # fmt: skip


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory):
    """The digits' graph as a file, with a checkpoint of another initialization: (graph, checkpoint, feeds)."""
    graph, feeds = digits()
    folder = tmp_path_factory.mktemp("graph")
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with tf.Session(graph=graph) as session:
        session.run("init")
        session.run(FETCHES, feeds)
        tf.train.Saver(saver_def=None, var_list=graph.get_collection("variables")).save(session, str(folder / "model"))
    return str(folder / "graph.pb"), str(folder / "model"), feeds


COMMAND = ["--fetches", "loss:0,train", "--feeds", "x:0,y:0"]


def test_the_command_takes_a_checkpoint(graph_file, tmp_path, capsys):
    graph, checkpoint, _ = graph_file
    argv = ["export", graph, *COMMAND, "--batch", "8", "--checkpoint", checkpoint, "--out", str(tmp_path / "step")]
    assert cli.main([*argv, "--precision-mode", "allow_mix_precision"]) == 0
    assert "2 feeds" in capsys.readouterr().out
    written = manifest.read(str(tmp_path / "step"))
    assert [t.shape for t in written.feeds] == [(8, 64), (8,)]
    state = manifest.state(str(tmp_path / "step"), written)
    reader = tf.train.load_checkpoint(checkpoint)
    for name in reader.get_variable_to_shape_map():
        np.testing.assert_array_equal(state[name], reader.get_tensor(name))


@pytest.mark.parametrize("name", ["model.meta", "graph.pb"])
def test_the_command_takes_what_a_script_with_a_loss_scale_has_saved(tmp_path, capsys, name):
    """Regression: the counters of NPULossScaleOptimizer are local, and so in no checkpoint, which was an error."""
    from npu_shim import loss_scale

    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 3], "x")
        loss = tf.reduce_mean(tf.square(_dense(x, 2, "layer")), name="loss")
        manager = loss_scale.ExponentialUpdateLossScaleManager(init_loss_scale=1024, incr_every_n_steps=2)
        optimizer = loss_scale.NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
        optimizer.minimize(loss, name="train")
        session.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(session, str(tmp_path / "model"))
        (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    argv = ["export", str(tmp_path / name), "--fetches", "loss:0,train", "--batch", "2"]
    assert cli.main([*argv, "--out", str(tmp_path / "step"), "--checkpoint", saved]) == 0, capsys.readouterr().err
    state = manifest.state(str(tmp_path / "step"), manifest.read(str(tmp_path / "step")))
    assert state["loss_scale"] == 1024
    assert state["loss_scale_steps"].tolist() == [0] * 5


def test_what_an_iterator_gives_is_fed(tmp_path, capsys):
    with tf.Graph().as_default() as graph:
        rows = (np.ones([4, 3], np.float32), np.ones([4], np.int32), np.zeros([9]))
        x, y, _ = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(rows).repeat()).get_next()
        logits = _dense(x, 5, "layer")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.global_variables_initializer()
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    argv = ["export", str(tmp_path / "graph.pb"), "--fetches", "loss:0,train", "--init", "init"]
    assert cli.main([*argv, "--out", str(tmp_path / "step")]) == 0, capsys.readouterr().err
    feeds = manifest.read(str(tmp_path / "step")).feeds
    assert [(feed.name, feed.shape) for feed in feeds] == [("IteratorGetNext:0", (4, 3)), ("IteratorGetNext:1", (4,))]


def test_the_command_takes_a_meta_graph_whose_shapes_a_pass_changes(tmp_path, capsys):
    """Regression: a Saver writes shapes beside its nodes, and those of an attention's mask were the unchanged ones."""
    with tf.Graph().as_default(), tf.Session() as session:
        x, mask = tf.placeholder(tf.float32, [2, 8, 16], "x"), tf.placeholder(tf.int32, [2, 8], "mask")
        heads = [tf.transpose(tf.reshape(_dense(tf.reshape(x, [16, 16]), 16, name), [2, 8, 2, 8]), [0, 2, 1, 3])
                 for name in ("query", "key", "value")]  # fmt: skip
        bias = (1.0 - tf.ones([2, 8, 1]) * tf.cast(tf.reshape(mask, [2, 1, 8]), tf.float32)) * -10000.0
        scores = tf.matmul(heads[0], heads[1], transpose_b=True) * 0.35 + tf.expand_dims(bias, 1)
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.softmax(scores), heads[2])), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        session.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(session, str(tmp_path / "model"))
    argv = ["export", saved + ".meta", "--fetches", "loss:0,train", "--out", str(tmp_path / "step")]
    assert cli.main([*argv, "--checkpoint", saved, "--device", "GPU"]) == 0, capsys.readouterr().err
    assert {feed.name for feed in manifest.read(str(tmp_path / "step")).feeds} == {"x:0", "mask:0"}


def test_the_command_without_values_says_so(graph_file, tmp_path, capsys):
    argv = ["export", graph_file[0], *COMMAND, "--shape", "x=4,64", "--shape", "y:0=4", "--out", str(tmp_path / "step")]
    assert cli.main(argv) == 0
    assert "values of variables are not exported" in capsys.readouterr().out
    assert manifest.STATE not in manifest.read(str(tmp_path / "step")).sha256


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "feed 'x:0' has shape (?, 64): give --shape x:0=2,3 or --batch"),
        (["--batch", "0"], "--batch is 0, expected 1 or more"),
        (["--batch", "4", "--shape", "z=1"], "--shape is given for 'z:0', which is not fed"),
        (["--batch", "4", "--shape", "x"], "--shape is 'x', expected a tensor and its sizes, as x:0=32,64"),
        (["--batch", "4", "--constant", "y"], "--constant is 'y', expected a tensor and its value, as x:0=[1,2]"),
        (["--batch", "4", "--device", "NPU"], "device is 'NPU', expected CPU or GPU"),
        (["--batch", "4", "--init", "init", "--checkpoint", "c"], "--checkpoint and --init both say"),
        (["--shape", "x=4,64", "--shape", "x:0=5,64"], "--shape is given twice for 'x:0'"),
        (["--batch", "4", "--constant", "y=1", "--constant", "y:0=2"], "--constant is given twice for 'y:0'"),
        (["--batch", "4", "--constant", "loss=[1,2]"], "constant 'loss:0' has shape (2,), the graph expects ()"),
        (["--batch", "4", "--constant", "z=1"], "constant 'z:0' is not in the graph"),
    ],
)
def test_the_command_explains(graph_file, tmp_path, capsys, more, message):
    assert cli.main(["export", graph_file[0], *COMMAND, "--out", str(tmp_path / "step"), *more]) == 2
    assert message in capsys.readouterr().err.replace("(None, 64)", "(?, 64)")
    assert not list(tmp_path.iterdir())


def test_a_used_folder_is_refused_before_jax_traces(graph_file, tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(step_function, "prepare")
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.main(["export", graph_file[0], *COMMAND, "--batch", "4", "--out", str(tmp_path)]) == 2
    assert "exists; an export goes to a new or empty folder" in capsys.readouterr().err


def test_temporary_files_that_cannot_be_written_are_told(session, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    with pytest.raises(ConfigError, match="the folder of temporary files cannot be used: Not a directory; TMPDIR"):
        export(session[0], FETCHES, shapes(session[1]), str(tmp_path / "step"), jax="/bin/false")


def partitioned(parts, rows, folder):
    """(Path of a graph, prefix of its checkpoint, value of its one variable, which has that many parts)."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        start, splits = tf.random_uniform_initializer(seed=parts), tf.fixed_size_partitioner(parts)
        w = tf.get_variable("w", [rows, 2], initializer=start, partitioner=splits)
        loss = tf.reduce_sum(tf.square(tf.convert_to_tensor(w)), name="loss")
        tf.train.MomentumOptimizer(0.25, 0.5).minimize(loss, name="train")
        saver = tf.train.Saver()
        session.run(tf.global_variables_initializer())
        prefix = saver.save(session, str(folder / ("model%d" % parts)), write_meta_graph=False)
        value = session.run(tf.convert_to_tensor(w))
    path = folder / ("graph%d.pb" % parts)
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path), prefix, value


def test_the_command_takes_a_checkpoint_of_other_parts(tmp_path, capsys):
    """Regression: a checkpoint of partitioned variables was an error."""
    graph, _, _ = partitioned(3, 5, tmp_path)
    _, checkpoint, value = partitioned(2, 5, tmp_path)
    argv = ["export", graph, "--fetches", "loss:0,train", "--out", str(tmp_path / "step"), "--checkpoint", checkpoint]
    assert cli.main(argv) == 0, capsys.readouterr().err
    written = manifest.read(str(tmp_path / "step"))
    assert written.slices["w/part_1/Momentum"] == ["w/Momentum", "5 2 2,2:0,2"]
    state = manifest.state(str(tmp_path / "step"), written)
    parts = np.concatenate([state["w/part_%d" % number] for number in range(3)])
    np.testing.assert_array_equal(parts, value)


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_are_told_by_their_shapes_where_no_saver_says_so(axis, tmp_path):
    """Regression: a graph without collections and Savers had no values for them."""
    splits = tf.fixed_size_partitioner(2, axis)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        w = tf.get_variable("w", [4, 3], initializer=tf.random_uniform_initializer(), partitioner=splits)
        tf.reduce_sum(tf.square(tf.convert_to_tensor(w)), name="loss")
        bare = graph.as_graph_def()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"))
        value = session.run(tf.convert_to_tensor(w))
    (tmp_path / "bare.pb").write_bytes(bare.SerializeToString())
    argv = ["export", str(tmp_path / "bare.pb"), "--fetches", "loss:0", "--checkpoint", str(tmp_path / "model")]
    assert cli.main([*argv, "--out", str(tmp_path / "step")]) == 0
    state = manifest.state(str(tmp_path / "step"), manifest.read(str(tmp_path / "step")))
    np.testing.assert_array_equal(np.concatenate([state["w/part_0"], state["w/part_1"]], axis), value)


def test_a_step_that_gives_nothing_is_an_error(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.identity(tf.placeholder(tf.float32, [2], "x"), "o")
    with pytest.raises(ConfigError, match="has no result"):
        export(graph, ["o"], ["x"], str(tmp_path / "step"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "message"), [
    ({"device": "cpu"}, "device is 'cpu', expected CPU or GPU"),
    ({"feeds": {"word:0": [2]}}, "feed 'word:0' is text, with which XLA does not compute"),
    ({"feeds": "word:0"}, "feeds is 'word:0', expected a list of tensors or their names"),
    ({"values": "w"}, "values is str, expected a dict of names to arrays"),
])  # fmt: skip
def test_what_a_session_exports_without_options_is_checked_too(given, message, tmp_path):
    """Regression: a program for a GPU where the device was a word in small letters, errors of numpy's for the rest."""
    with tf.Graph().as_default(), tf.Session() as session:
        word = tf.placeholder(tf.string, [2], "word")
        w = tf.get_variable("w", initializer=np.float32(1))
        update = tf.assign_add(w, tf.cast(tf.size(tf.strings.length(word)), tf.float32))
        session.run(tf.global_variables_initializer())
        arguments = {"fetches": [update], "feeds": [], "out": str(tmp_path / "step"), **given}
        with pytest.raises(ConfigError, match=message):
            export(session, **arguments)


def test_what_the_fetches_do_not_need_is_not_fed(tmp_path, capsys):
    """Regression: placeholders of another step were feeds, or their open shapes an error. A scalar had no --shape."""
    with tf.Graph().as_default() as graph:
        tf.placeholder(tf.float32, name="unused")
        given = tf.placeholder(tf.float32, [None, 4], "given")
        rate = tf.placeholder(tf.float32, name="rate")
        tf.multiply(tf.ones([2, 4]) + given, rate, name="y")
        tf.as_string(rate, name="text")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    argv = ["export", str(tmp_path / "graph.pb"), "--out", str(tmp_path / "step"), "--shape", "rate=", "--batch", "2"]
    assert cli.main([*argv, "--fetches", "text:0"]) == 2
    assert "fetch 'text:0' is text, with which XLA does not compute" in capsys.readouterr().err
    assert cli.main([*argv, "--fetches", "y:0"]) == 0, capsys.readouterr().err
    assert "not exported" not in capsys.readouterr().out
    assert {t.name: t.shape for t in manifest.read(str(tmp_path / "step")).feeds} == {"given:0": (2, 4), "rate:0": ()}


def test_a_frozen_graph_lacks_no_values(tmp_path):
    """Regression: it was exported "without values", and could not be loaded without `state`."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        tf.multiply(x, 2.0, name="twice")
        tf.nn.dropout(x, rate=0.5, name="drawn")
    assert manifest.STATE in export(graph, ["twice:0"], ["x:0"], str(tmp_path / "one")).sha256
    assert manifest.STATE in export(graph, ["drawn/Mul:0"], ["x:0"], str(tmp_path / "other")).sha256


def test_the_command_names_what_a_checkpoint_has_otherwise(tmp_path, capsys):
    graph, _, _ = partitioned(3, 5, tmp_path)
    _, checkpoint, _ = partitioned(2, 6, tmp_path)
    argv = ["export", graph, "--fetches", "loss:0,train", "--out", str(tmp_path / "step"), "--checkpoint", checkpoint]
    assert cli.main(argv) == 2
    assert "'w' has shape [6, 2], the step has [5, 2]" in capsys.readouterr().err
    assert not (tmp_path / "step").exists()


def test_the_cost_of_a_graph(graph_file, capsys):
    argv = ["cost", graph_file[0], *COMMAND, "--batch", "8", "--precision-mode", "allow_mix_precision", "--json", "-"]
    assert cli.main(argv) == 0
    plain, mixed = json.loads(capsys.readouterr().out)
    assert plain["name"] == "as written"
    forward = 2 * 8 * (64 * 32 + 32 * 10)
    weights, hidden = forward, 2 * 8 * 32 * 10  # backward: both kernels, but of what goes in only the hidden layer
    assert plain["products"] == {"float32": forward + weights + hidden}
    assert mixed["products"] == {"float16": plain["products"]["float32"]}
    assert plain["state"] == mixed["state"]
    assert plain["state"]["parameter"] == plain["state"]["optimizer"] == 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert plain["temporary"] > 0
    assert plain["moved"] > 0


RUN = """
import json, sys
sys.modules["tensorflow"] = None  # an import of it fails
import numpy, npu_shim.pjrt
for folder in sys.argv[2:]:
    program = npu_shim.pjrt.load(folder, device="cpu")
    feeds = {name: value for name, value in numpy.load(folder + ".npz").items()}
    print(json.dumps([[float(value) for value in program.run(feeds).values()] for _ in range(int(sys.argv[1]))]))
"""


def interpreter_with_jax():
    """The Python of NPU_SHIM_JAX, or this one where JAX lies beside TensorFlow; the test is skipped without one."""
    interpreter = os.environ.get("NPU_SHIM_JAX") or (importlib.util.find_spec("jaxlib") and sys.executable)
    if not interpreter:
        pytest.skip("no interpreter with JAX: NPU_SHIM_JAX names none")
    return interpreter


def under_jax(interpreter, folders, site, steps):
    """The losses of exported steps in a process of that interpreter that cannot import TensorFlow: a list for each."""
    site.mkdir()
    environment = dict(os.environ, PYTHONPATH=package(site))
    command = [interpreter, "-c", RUN, str(steps), *folders]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    return [[loss for (loss,) in json.loads(line)] for line in done.stdout.decode().strip().splitlines()]


def package(folder):
    """This tree's npu_shim as another interpreter imports it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(ROOT / "npu_shim"), str(folder / "npu_shim"), ignore=ignored)  # with what its links lead to
    return str(folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Losses under JAX beside TensorFlow's: (model, "float32" or "mixed") -> (TensorFlow's, JAX's)."""
    interpreter = interpreter_with_jax()
    folder = tmp_path_factory.mktemp("exported")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import bench_models
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    expected, functional = {}, tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()  # the loop is one of TensorFlow 1
    models = _models(bench_models)
    if functional:
        tf.enable_control_flow_v2()
    for name, model in models.items():
        graph, feeds = model
        for mode, options in (("float32", {}), ("mixed", MIX)) if name in MIXED else [("float32", {})]:
            out = str(folder / (name + "-" + mode))
            expected[name, mode] = _session_losses(graph, feeds, out, interpreter, options)
    folders = [str(folder / "-".join(key)) for key in expected]
    actual = under_jax(interpreter, folders, folder / "site", STEPS)
    return {key: (losses, mine) for (key, losses), mine in zip(expected.items(), actual)}


def _models(bench_models):
    """name -> (graph, feeds): the digits, and the benchmark's models at sizes of seconds."""
    sizes = {
        "resnet50": {"batch": 8, "image": 64, "width": 8, "blocks": (1, 1, 1, 1), "classes": 10},
        "bert": {"batch": 2, "sequence": 16, "hidden": 32, "layers": 2, "heads": 2, "vocabulary": 100},
        "lstm": {"batch": 4, "time": 6, "vocabulary": 50, "hidden": 16},
    }
    models = {"digits": digits()}
    random = np.random.RandomState(0)
    for name, size in sizes.items():
        built = bench_models.build(name, size)
        models[name] = (
            built.graph,
            {
                key: random.randint(0, bound, shape).astype(dtype) if bound else random.randn(*shape).astype(dtype)
                for key, (dtype, shape, bound) in sorted(built.feeds.items())
            },
        )
    return models


def _session_losses(graph, feeds, folder, interpreter, options):
    with tf.Session(graph=graph) as session:
        session.run("init")
        export(session, FETCHES, shapes(feeds), folder, jax=interpreter, **options)
        np.savez(folder + ".npz", **feeds)
        if not options:
            return [float(session.run(FETCHES, feeds)[0]) for _ in range(STEPS)]
        step = npu_shim.compile_step(session, FETCHES, shapes(feeds), **options)
        return [float(step(feeds)[0]) for _ in range(STEPS)]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["digits", "resnet50", "bert", "lstm"])
def test_losses_under_jax_are_the_sessions(exported, name):
    session, under_jax = exported[name, "float32"]
    CLOSE(under_jax[0], session[0])
    # batch normalization over few values makes more of a last bit, step after step
    np.testing.assert_allclose(under_jax, session, rtol=1e-5 if name == "resnet50" else 1e-6)
    assert under_jax[-1] < under_jax[0]


@pytest.mark.nightly
@pytest.mark.parametrize("name", MIXED)
def test_losses_in_mixed_precision_are_the_compiled_steps(exported, name):
    compiled, under_jax = exported[name, "mixed"]
    # the compilers of two releases round intermediate float16 values at different places
    np.testing.assert_allclose(under_jax, compiled, rtol=16 * np.finfo(np.float16).eps)
