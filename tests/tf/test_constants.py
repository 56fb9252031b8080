"""Constants that float16 cannot hold are named before they do harm."""

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim


def warnings(build, mode="allow_mix_precision"):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.identity(build(tf.matmul(x, x)), name="out")
    _, plan = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode=mode, device="GPU")
    return plan.warnings


LOST = {
    "mask": (lambda y: y + tf.constant(-1e9, name="c"), "'c' has -1e\\+09, which becomes infinity"),
    "scale": (lambda y: y * tf.constant(1e10, name="c"), "'c' has 1e\\+10, which becomes infinity"),
    "epsilon": (lambda y: y + tf.constant(1e-8, name="c"), "'c' has 1e-08, which becomes zero"),
    "one of many": (lambda y: y * tf.constant([1.0, 2.0, 1e-12, 4.0], name="c"), "'c' has 1e-12, which becomes zero"),
}


@pytest.mark.parametrize("case", LOST)
def test_lost_constants_are_named_with_their_reader_and_the_way_out(case):
    build, message = LOST[case]
    [warning] = warnings(build)
    assert re.search(message, warning)
    assert "op %s" % ("Mul" if case in ("scale", "one of many") else "AddV2") in warning
    assert "keep_dtype_scope" in warning


@pytest.mark.parametrize("value", [0.0, 1.0, -65504.0, 6e-8, np.inf, -np.inf, np.nan])
def test_what_float16_holds_or_was_infinite_already_is_not(value):
    assert warnings(lambda y: y + tf.constant(value)) == ()


def test_bfloat16_and_float32_readers_lose_nothing():
    assert warnings(lambda y: y + tf.constant(-1e9), "allow_mix_precision_bf16") == ()
    assert warnings(lambda y: tf.exp(y) + tf.constant(-1e9)) == ()
