"""Odd but readable files at the entrances of the command line: one line that says what is wrong, exit status 2."""

import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="export and cost need TensorFlow 2.15 or later")

FLOAT = "attr { key: 'T' value { type: DT_FLOAT } }"
GRAPHS = {
    "unknown op": ("node { name: 'a' op: 'NotAnOp' }", "NotAnOp"),
    "missing input": ("node { name: 'a' op: 'Identity' input: 'gone' %s }" % FLOAT, "'gone'"),
    "missing attribute": ("node { name: 'a' op: 'Placeholder' }", "'dtype'"),
    "two of one name": ("node { name: 'a' op: 'NoOp' } node { name: 'a' op: 'NoOp' }", "two nodes 'a'"),
    "cycle": (
        "node {{ name: 'a' op: 'Identity' input: 'b' {0} }} node {{ name: 'b' op: 'Identity' input: 'a' {0} }}".format(
            FLOAT
        ),
        "cycle",
    ),
}


def refused(capsys, *argv):
    """The one line that a command with bad input prints."""
    assert cli.main([str(word) for word in argv]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("npu_shim: ")
    assert line.count("npu_shim: ") == 1
    return line


@pytest.mark.parametrize("command", ["export", "cost", "opt"])
@pytest.mark.parametrize("case", sorted(GRAPHS))
def test_a_graph_that_tensorflow_cannot_import(command, case, capsys, tmp_path):
    text, told = GRAPHS[case]
    path = tmp_path / "graph.pbtxt"
    path.write_text(text)
    out = ("--out", tmp_path / "out") if command == "export" else ()
    assert told in refused(capsys, command, path, "--fetches", "a", *out)


@pytest.mark.parametrize("case", ["missing input", "two of one name", "cycle"])
def test_a_graph_that_cannot_run_has_no_plan(case, capsys, tmp_path):
    text, told = GRAPHS[case]
    path = tmp_path / "graph.pbtxt"
    path.write_text(text)
    assert told in refused(capsys, "plan", path, "--fetches", "a")


def step(dtype=tf.float32):
    w = tf.get_variable("w", [2], dtype, initializer=tf.ones_initializer())
    tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(w * w, name="loss"), name="train")


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        step()
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def saved(dtype, prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        step(dtype)
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(prefix))


@pytest.mark.parametrize(("dtype", "hint"), [("float16", True), ("float64", False)])
def test_a_checkpoint_of_another_dtype_is_told_once(dtype, hint, graph, capsys, tmp_path):
    prefix = saved(tf.as_dtype(dtype), tmp_path / "saved" / "model")
    line = refused(capsys, "cost", graph, "--fetches", "train", "--checkpoint", prefix)
    assert "'w' is %s, the step has float32" % dtype in line
    assert ("migrate-checkpoint" in line) == hint


def test_cost_takes_the_folder_of_a_checkpoint_as_its_graph(capsys, tmp_path):
    saved(tf.float32, tmp_path / "saved" / "model")
    assert cli.main(["cost", str(tmp_path / "saved"), "--fetches", "train", "--no-compile"]) == 0
    assert "parameters" in capsys.readouterr().out


def test_cost_of_an_empty_folder(capsys, tmp_path):
    line = refused(capsys, "cost", tmp_path)
    assert "is not an exported step: it has no manifest.json, and has no SavedModel" in line


def test_cost_needs_a_result_and_known_products(graph, capsys):
    assert "the step has no result" in refused(capsys, "cost", graph, "--fetches", "loss", "--no-compile")
    line = refused(capsys, "cost", graph, "--fetches", "train", "--no-compile", "--float32-products", "x")
    assert "float32_products is 'x', expected one of default, highest" in line
