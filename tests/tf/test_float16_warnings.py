"""What float16 cannot hold is named in the plan: the silent failures of other rewriters, each with its way out."""

import re

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.rewriter.graph.graph_view import Port
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.inference.ranges import Ranges

MIX = {"precision_mode": "allow_mix_precision"}
EYE = np.eye(4, dtype=np.float32)


def squared():
    x = tf.placeholder(tf.float32, [4, 4], "x")
    return tf.matmul(tf.square(tf.matmul(x, 300.0 * EYE), name="square"), EYE)


def long_sum():
    x = tf.placeholder(tf.float32, [4, 4], "x")
    wide = tf.nn.sigmoid(tf.matmul(x, tf.ones([4, 4096])))
    return tf.matmul(wide, tf.fill([4096, 4], 64.0), name="long")


def scaled():
    x = tf.placeholder(tf.float32, [4, 4], "x")
    return tf.matmul(tf.matmul(x, EYE) * tf.constant(1e10, name="scale"), EYE)


def positions():
    x = tf.placeholder(tf.float32, [4, 4], "x")
    count = tf.cast(tf.range(2049, 2053, name="positions"), tf.float32)
    return tf.matmul(x, EYE) * count


FAILURES = {
    "square": (squared, r"'square' \(op Square\) is rounded to float16 for 'MatMul\w*' .* above 255 become infinity"),
    "sum": (long_sum, r"'long' \(op MatMul\) is computed in float16 and may reach 262144, which becomes infinity"),
    "scale": (scaled, r"constant 'scale' has 1e\+10, which becomes infinity"),
    "positions": (positions, r"'positions' \(int32\) goes to 2053, above 2048, .* and 'mul' \(op Mul\) reads it"),
}


def graph_of(build):
    with tf.Graph().as_default() as graph:
        tf.identity(build(), name="out")
    return graph.as_graph_def()


def run(graph_def):
    return sessions.run_graph(graph_def, "out:0", {"x:0": EYE})


@pytest.mark.parametrize("case", FAILURES)
def test_each_silent_failure_is_named_with_its_way_out(case):
    build, message = FAILURES[case]
    result, plan = npu_shim.rewrite(graph_of(build), ["out"], device="CPU", **MIX)
    [warning] = plan.warnings
    assert re.search(message, warning), warning
    assert "keep_dtype_scope" in warning
    assert "black-list" in warning
    # and it is a failure: the warning is not for nothing
    with np.errstate(all="ignore"):
        assert not np.allclose(run(result), run(graph_of(build)), rtol=1e-4)


@pytest.mark.parametrize("case", FAILURES)
def test_the_way_out_helps(case):
    build, _ = FAILURES[case]

    def kept():
        with keep_dtype_scope():
            return build()

    result, plan = npu_shim.rewrite(graph_of(kept), ["out"], device="CPU", **MIX)
    assert plan.warnings == ()
    np.testing.assert_allclose(run(result), run(graph_of(build)), rtol=1e-3)


def test_no_warning_without_a_reason():
    def build():
        x = tf.placeholder(tf.float32, [4, 4], "x")
        h = tf.nn.relu(tf.matmul(x, EYE)) * 0.5 + tf.constant(-10000.0)
        mask = tf.cast(tf.placeholder(tf.int32, [4, 4], "m"), tf.float32)
        return tf.matmul(h * tf.cast(h > 0, tf.float32), EYE) + tf.nn.softmax(mask)

    assert npu_shim.rewrite(graph_of(build), ["out"], **MIX)[1].warnings == ()
    for build, _ in FAILURES.values():  # bfloat16 has float32's range, and float32 loses nothing
        for mode in ("allow_mix_precision_bf16", "must_keep_origin_dtype"):
            options = {"precision_mode": mode, "npu_shim_profile": "gpu"}
            assert npu_shim.rewrite(graph_of(build), ["out"], **options)[1].warnings == ()


def test_whole_numbers_are_warned_of_in_one_line_and_only_where_they_are_known_to_be_large():
    def build(grid, counter=False):
        x = tf.placeholder(tf.float32, [4, 4], "x")
        y = tf.matmul(x, EYE)
        if counter:
            step = tf.get_variable("step", [], tf.int64, initializer=tf.zeros_initializer(), trainable=False)
            y *= tf.cast(step, tf.float32)
        return tf.concat([y[:, :1] * tf.cast(grid + n, tf.float32) for n in range(6)], 1)

    def warned(**kwargs):
        limit = kwargs.pop("limit")
        graph = graph_of(lambda: build(tf.range(limit() if callable(limit) else limit), **kwargs))
        return [w for w in npu_shim.rewrite(graph, ["out"], device="CPU", **MIX)[1].warnings if "whole" in w]

    fed = lambda: tf.placeholder(tf.int32, [])  # noqa: E731 - the size of a grid of cells, at most 80
    assert warned(limit=fed) == warned(limit=80) == []
    [warning] = warned(limit=fed, counter=True)
    assert "counts above 2048" in warning
    [warning] = warned(limit=3000)
    assert "(and 5 more like it) goes to 3000, above 2048" in warning


def every_rule():
    """Values within their ranges, whatever is fed: one op for each rule."""
    x = tf.nn.tanh(tf.placeholder(tf.float32, [3, 5], "x")) * 7.0 - 2.0
    y = tf.nn.sigmoid(x) + tf.constant([0.5, 1.0, 2.0, 3.0, 9.0])
    image = tf.reshape(x, [1, 5, 3, 1])
    return [
        x, y, x * x, x * y, x / y, -x, tf.abs(x), tf.nn.relu(x), tf.nn.relu6(x), tf.exp(x), tf.sqrt(y), tf.square(x),
        tf.maximum(x, y), tf.add_n([x, y, x]), tf.reduce_sum(x, [0]), tf.reduce_mean(x, [1]),
        tf.matmul(x, y, transpose_b=True), tf.matmul(tf.reshape(x, [1, 3, 5]), tf.reshape(y, [1, 5, 3])),
        tf.concat([x, y], 0), tf.stack([x, y]),
        tf.where(x > 0, x, y), tf.one_hot([1, 2], 4, 9.0, -9.0), tf.erf(x), tf.transpose(x), tf.nn.softmax(x),
        tf.nn.conv2d(image, tf.fill([3, 3, 1, 2], -0.7), 1, "SAME"), tf.cast(tf.range(2, 9), tf.float32),
    ]  # fmt: skip


def test_ranges_are_sound():
    with tf.Graph().as_default() as graph:
        outputs = every_rule()
    graph_def = graph.as_graph_def()
    view = graphs.read(graph_def)
    ranges = Ranges(view, graph_def.node)
    position = view.positions()
    with tf.Session(graph=graph) as session:
        for seed in range(20):
            values = session.run(outputs, {"x:0": np.random.RandomState(seed).randn(3, 5) * 10**seed})
            for output, value in zip(outputs, values):
                least, most = ranges.range(Port(position[output.op.name], 0))
                assert least - 1e-4 <= value.min(), output.op
                assert value.max() <= most + 1e-4, output.op


def test_nothing_is_told_of_what_may_be_anything():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3, None], "x")
        y = tf.nn.tanh(x)
        outputs = [x, x / y, 1.0 / y, tf.reduce_sum(y, [1]), tf.math.cumsum(y)]
    graph_def = graph.as_graph_def()
    view = graphs.read(graph_def)
    ranges = Ranges(view, graph_def.node)
    assert [ranges.range(Port(view.positions()[output.op.name], 0)) for output in outputs] == [None] * 5
