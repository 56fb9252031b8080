"""NPU_SHIM_TRACE: what a program that watches a run reads."""

import json

import pytest
import sessions
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.usefixtures("patched")


def test_each_rewritten_graph_is_a_line_of_json(tmp_path, monkeypatch):
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("NPU_SHIM_TRACE", str(path))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 4])
        product, total = tf.matmul(x, x), tf.reduce_sum(x)
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(product, {x: [[1.0] * 4] * 4})
            session.run(product, {x: [[2.0] * 4] * 4})  # the same graph: no second line
            session.run(total, {x: [[2.0] * 4] * 4})
    lowered, kept = (json.loads(line) for line in path.read_text().splitlines())
    assert (lowered["mode"], lowered["low"], lowered["lowered"], lowered["changed"]) == (
        "allow_mix_precision", "float16", 1, True,
    )  # fmt: skip
    assert (kept["lowered"], kept["changed"], kept["low_by_hand"]) == (0, False, 0)


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.delenv("NPU_SHIM_TRACE", raising=False)
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 4])
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(tf.matmul(x, x), {x: [[1.0] * 4] * 4})
    assert list(tmp_path.iterdir()) == []
