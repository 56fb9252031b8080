"""Rules of the lint, one row each: what float32 bears out is named, and what float16 holds is not."""

import json
import re

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.rewriter.lint.rules import RULES

EYE = np.eye(4, dtype=np.float32)
ONES, ZEROS = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)


def product():
    """x, as a product gives it, in float16."""
    return tf.matmul(tf.placeholder(tf.float32, [4, 4], "x"), EYE)


def low_epsilon():
    """The sum with the epsilon is in float16: zero rows are divided by zero."""
    y = product()
    return tf.matmul(y / (tf.sqrt(y) + 1e-8), EYE)


def rounded_epsilon():
    """The norm is in float32, and rounded for a quotient of what is low."""
    y = product()
    return tf.matmul(y / (tf.sqrt(tf.reduce_sum(tf.square(y), 1, keepdims=True)) + 1e-8), EYE)


def normalized():
    return tf.matmul(tf.nn.l2_normalize(product(), 1), EYE)


def mask():
    """A mask of whole numbers, multiplied in float32 as BERT does it, but with 1e9."""
    keep = tf.constant([[1, 1, 0, 0]])
    return tf.nn.softmax(product() + (1.0 - tf.cast(keep * 0, tf.float32)) * -1e9)


def total():
    wide = tf.matmul(tf.placeholder(tf.float32, [4, 4], "x"), tf.ones([4, 4096]))
    return tf.reduce_sum(wide * 8.0, 1)


def variance():
    mean, spread = tf.nn.moments(product() * 1e-4, [1])
    return tf.sqrt(spread) + 0.0 * mean


def grown():
    return tf.log(tf.exp(product() * 20.0))


def updated():
    """A weight of 1 that steps of 0.0001 move in float32."""
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    return tf.assign(w, w - 1e-4 * product())


def learned():
    """A learning rate of 0.00001 makes small gradients zero."""
    w = tf.get_variable("w", [4, 4], initializer=tf.zeros_initializer(), use_resource=True)
    return tf.assign_sub(w, 1e-5 * (1e-3 * product()))


def averaged():
    moving = tf.get_variable("moving", [4, 4], initializer=tf.constant_initializer(1000.0), use_resource=True)
    return tf.assign_sub(moving, (moving - product()) * 0.5)


def segments():
    """Nothing belongs to segment 1."""
    return tf.unsorted_segment_max(product(), [0, 2, 2, 3], 4)


def low_segments():
    return tf.unsorted_segment_min(product(), [0, 0, 2, -1], 3)


def fed_segments():
    """The data say that all rows belong to segment 0."""
    y = product()
    return tf.unsorted_segment_max(y, tf.argmax(y, 1), 4)


# case -> (rule, what builds it, op types on the white-list, what is fed, the message)
CASES = {
    "low epsilon": ("epsilons", low_epsilon, [], ZEROS, r"'truediv' \(op RealDiv\) divides .* 1e-08 .* zero: 'add'"),
    "epsilon": ("epsilons", rounded_epsilon, ["RealDiv"], ZEROS, r"'add' \(op AddV2\) keeps .* off zero by 1e-08, "),
    "l2": ("epsilons", normalized, ["Mul"], ZEROS, r"'l2_normalize/Maximum' .* 1e-12 .* reciprocal 1e\+06 .* infinity"),
    "mask": ("masks", mask, [], ONES, r"'mul_1' \(op Mul\) holds -1e\+09, which becomes infinity where .* for 'add'"),
    "sum": ("sums", total, ["Sum"], 4 * ONES, r"'Sum' \(op Sum\) adds 4096 elements in float16: terms .* infinity"),
    "variance": ("variances", variance, ["Mean", "SquaredDifference"], EYE, r"'moments/variance' .* is a variance"),
    "exponential": ("exponentials", grown, ["Exp"], ONES, r"'Exp' \(op Exp\) is computed in float16, .* above 11"),
    "segments": ("segments", segments, [], ONES, r"'UnsortedSegmentMax' .* gets -65504, not -3.4e\+38 as in float32"),
    "low segments": ("segments", low_segments, [], ONES, r"'UnsortedSegmentMin' .* gets 65504, not 3.4e\+38 as in"),
    "fed segments": ("segments", fed_segments, [], ONES, r"'UnsortedSegmentMax' \(op .* without elements gets -65504"),
    "update": ("updates", updated, [], ONES, r"variable 'w' is updated by 'sub' \(op Sub\), .* \(times 0.0001\)"),
    "rate": ("updates", learned, [], ONES, r"variable 'w' is updated by 'mul_1' .* \(times 1e-05\): .* below 6e-08"),
    "average": ("updates", averaged, [], 1000.3 * ONES, r"variable 'moving' is updated by 'mul' .* \(times 0.5\)"),
}  # fmt: skip


def graph_of(build):
    with tf.Graph().as_default() as graph:
        tf.identity(build(), name="out")
        tf.group(*[v.initializer for v in tf.global_variables()], name="init")
    return graph.as_graph_def()


def planned(graph_def, white, tmp_path):
    options = {"precision_mode": "allow_mix_precision", "device": "CPU"}
    if white:
        path = tmp_path / "mixlist.json"
        black = [op for op in white if op not in ("Mul", "RealDiv")]
        path.write_text(json.dumps({"black-list": {"to-remove": black}, "white-list": {"to-add": white}}))
        options["modify_mixlist"] = str(path)
    return npu_shim.rewrite(graph_def, ["out", "init"], **options)


def run(graph_def, fed):
    return sessions.run_graph(graph_def, "out:0", {"x:0": fed}, initializer="init")


def test_each_rule_has_a_case():
    elsewhere = {"constants", "clamped", "products", "whole numbers", "scales"}  # test_float16_*.py, test_saturation.py
    assert {case[0] for case in CASES.values()} | elsewhere == set(RULES)


@pytest.mark.parametrize("case", CASES)
def test_each_rule_names_what_float32_bears_out(case, tmp_path):
    rule, build, white, fed, message = CASES[case]
    assert rule in RULES
    plain = graph_of(build)
    result, plan = planned(plain, white, tmp_path)
    assert [text for text in plan.warnings if re.search(message, text)], plan.warnings
    assert len(plan.warnings) == 1
    with np.errstate(all="ignore"):
        assert not np.allclose(run(result, fed), run(plain, fed), rtol=2e-5, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_the_way_out_of_each_rule_helps(case, tmp_path):
    _, build, white, fed, _ = CASES[case]

    def kept():
        with keep_dtype_scope():
            return build()

    result, plan = planned(graph_of(kept), white, tmp_path)
    assert plan.warnings == ()
    np.testing.assert_allclose(run(result, fed), run(graph_of(build), fed), rtol=2e-5, atol=0)


def healthy():
    """One use of each kind that float16 holds."""
    y = product()
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    yield y / (tf.sqrt(tf.abs(y)) + 1e-3)
    mean, spread = tf.nn.moments(y, [1], keepdims=True)
    yield (y - mean) * tf.rsqrt(spread + 1e-12)
    yield y + (1.0 - tf.cast(tf.constant([[1, 1, 0, 0]]), tf.float32)) * -10000.0
    yield tf.unsorted_segment_max(y, [0, 1, 1, 2], 3)  # none is empty
    yield tf.segment_max(y, [0, 1, 1, 3])
    nearest = y - tf.reduce_max(y, 1, keepdims=True)
    distant = tf.reduce_sum(tf.square(y), 1, keepdims=True) * -0.5
    yield [tf.matmul(tf.exp(value), EYE) for value in (nearest, -tf.square(y), distant * tf.ones([4, 4]))]
    yield (
        tf.train.GradientDescentOptimizer(0.5)
        .minimize(  # sparse: the product with the rate is low, as its gradient
            tf.reduce_sum(tf.matmul(tf.gather(w, [0, 1]), EYE))
        )
        .outputs
    )
    yield tf.assign_sub(w, 1e-4 * tf.gradients(tf.reduce_sum(tf.square(w)), w)[0])


def test_silent_on_what_float16_holds(tmp_path):
    def build():
        return tf.add_n([tf.reduce_sum(value) for value in tf.nest.flatten(list(healthy()))])

    assert planned(graph_of(build), [], tmp_path)[1].warnings == ()
    short = graph_of(lambda: tf.reduce_sum(product()) + tf.reduce_mean(product()))
    assert planned(short, ["Sum", "Mean"], tmp_path)[1].warnings == ()


@pytest.mark.parametrize("mode", ["allow_mix_precision_bf16", "allow_fp32_to_fp16", "force_fp32"])
def test_segments_that_stay_as_they_are_are_no_finding(mode):
    assert npu_shim.rewrite(graph_of(segments), ["out"], precision_mode=mode)[1].warnings == ()


def test_several_segment_maxima_are_one_warning():
    _, plan = npu_shim.rewrite(graph_of(lambda: segments() + segments()), ["out"], precision_mode="allow_mix_precision")
    assert len(plan.warnings) == 1
    assert "(op UnsortedSegmentMax) (and 1 more like it) is computed" in plan.warnings[0]


@pytest.mark.parametrize("name", [
    "bert_tiny_train", "crnn_ctc_train", "lstm_lm_train", "resnet50_train", "resnet50_ref_train", "bert_large_train"
])  # fmt: skip
def test_silent_on_healthy_training_graphs(name):
    about = reference_material.about(name)
    graph_def, fetches = reference_material.training_graph(name), [about["loss"], about["train_op"]]
    large = name == "bert_large_train"  # it is bert_tiny but for its size
    for mode in ("allow_mix_precision",) if large else ("allow_mix_precision", "allow_fp32_to_fp16"):
        options = {"precision_mode": mode, "device": "GPU"}
        assert npu_shim.rewrite(graph_def, fetches, list(about["feeds"]), **options)[1].warnings == ()
