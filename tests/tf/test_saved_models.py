"""npu-shim plan --write FOLDER: a SavedModel in half precision, which TensorFlow loads by itself."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2

from npu_shim.cli.graphs import saved_model
from npu_shim.rewriter import tf_internals

MIX = ("--precision-mode", "allow_mix_precision", "--device", "GPU")
X = np.random.RandomState(0).normal(size=[5, 4]).astype(np.float32)
WORDS = np.array(["b", "a", "c", "zz", "a"])


def network(vocabulary):
    """Placeholders, and what is served: a variable of each kind, and a table whose file is an asset."""
    x, words = tf.placeholder(tf.float32, [None, 4], "x"), tf.placeholder(tf.string, [None], "words")
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(vocabulary, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                                      tf.lookup.TextFileIndex.LINE_NUMBER), 1)  # fmt: skip
    w = tf.get_variable("w", [4, 8], use_resource=True)
    rows = tf.get_variable("rows", [4, 8])
    h = tf.nn.relu(tf.matmul(x, w)) + tf.gather(rows, table.lookup(words))
    return {"x": x, "words": words}, {"h": h, "p": tf.nn.softmax(tf.matmul(h, tf.eye(8, 3)), name="p")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(SavedModel, checkpoint without the table, what they give), saved by TensorFlow alone."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "vocabulary").write_text("a\nb\nc\n")
    with tf.Graph().as_default():
        inputs, outputs = network(str(folder / "vocabulary"))
        with sessions.started() as session:
            session.run(tf.tables_initializer())
            tf.saved_model.simple_save(
                session, str(folder / "model"), inputs, outputs, legacy_init_op=tf.tables_initializer()
            )
            expected = session.run(outputs, {inputs["x"]: X, inputs["words"]: WORDS})
    (folder / "vocabulary").unlink()  # from here on it is an asset
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4], "x")
        y = tf.identity(tf.nn.tanh(tf.matmul(x, tf.get_variable("w", [4, 8]))), "y")
        tf.train.AdamOptimizer().minimize(tf.reduce_sum(y))
        with sessions.started() as session:
            expected["y"] = session.run(y, {x: X})
            tf.train.Saver().save(session, str(folder / "checkpoint" / "model"))
    return folder / "model", folder / "checkpoint", expected


def close(actual, expected):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=4e-3, atol=4e-3)
    assert np.abs(actual - expected).max() > 0  # it was rounded


def test_a_saved_model_is_served_in_float16(saved, capsys, tmp_path):
    model, _, expected = saved
    status, out, err = sessions.command(capsys, "plan", model, "--fetches", "p", *MIX, "--write", tmp_path / "low")
    assert (status, err) == (0, "")
    assert "to float16" in out
    with tf.Graph().as_default() as graph, tf.Session() as session:
        meta = tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "low"))
        signature, original = meta.signature_def["serving_default"], tf.MetaGraphDef()
        values = session.run({key: info.name for key, info in signature.outputs.items()}, {"x:0": X, "words:0": WORDS})
        assert [op for op in graph.get_operations() if op.type == "Cast" and op.outputs[0].dtype == tf.float16]
        assert {v.dtype.base_dtype for v in tf.global_variables()} == {tf.float32}
    for key in ("h", "p"):
        close(values[key], expected[key])
    with tf.Graph().as_default(), tf.Session() as session:
        original = tf.saved_model.loader.load(session, ["serve"], str(model))
    assert signature == original.signature_def["serving_default"]
    assert os.listdir(tmp_path / "low" / "assets") == ["vocabulary"]
    with tf_internals.eager_mode():
        loaded = tf2.saved_model.load(str(tmp_path / "low"))
        served = loaded.signatures["serving_default"](x=tf.constant(X), words=tf.constant(WORDS))
        close(served["p"].numpy(), expected["p"])


def test_a_checkpoint_becomes_a_saved_model(saved, capsys, tmp_path):
    _, checkpoint, expected = saved
    argv = ("plan", checkpoint, "--fetches", "y", *MIX, "--write", tmp_path / "low")
    assert sessions.command(capsys, *argv)[::2] == (0, "")
    with tf.Graph().as_default() as graph, tf.Session() as session:
        meta = tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "low"))
        assert list(meta.signature_def["serving_default"].inputs) == ["x"]
        close(session.run("y:0", {"x:0": X}), expected["y"])
        types = {op.type for op in graph.get_operations()}
    assert "Cast" in types
    assert "ApplyAdam" not in types
    assert sorted(os.listdir(tmp_path / "low" / "variables")) == ["variables.data-00000-of-00001", "variables.index"]


def test_what_cannot_be_written_is_told_and_leaves_nothing(saved, capsys, tmp_path, monkeypatch):
    model, checkpoint, _ = saved

    def told(*argv):
        status, _, err = sessions.command(capsys, "plan", *argv)
        assert status == 2
        assert len(err.splitlines()) == 1
        return err

    (tmp_path / "there").mkdir()
    assert "exists already" in told(model, "--write", tmp_path / "there")
    with tf.Graph().as_default() as graph:
        tf.placeholder(tf.float32, [], "x")
    tf.train.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
    assert "has no variables" in told(tmp_path / "graph.pb", "--fetches", "x", "--write", tmp_path / "low")
    assert "'z' is not in the graph" in told(checkpoint, "--fetches", "z", "--write", tmp_path / "low")
    with tf_internals.eager_mode():
        module = tf.Module()
        module.f = tf.function(lambda: tf.constant(1.0)).get_concrete_function()
        tf2.saved_model.save(module, str(tmp_path / "second"), signatures={"f": module.f})
    assert "is a SavedModel of TensorFlow 2" in told(tmp_path / "second", "--write", tmp_path / "low")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved_model.shutil, "copyfile", full)
    assert "No space left on device" in told(model, *MIX, "--write", tmp_path / "low")
    assert sorted(os.listdir(tmp_path)) == ["graph.pb", "second", "there"]
