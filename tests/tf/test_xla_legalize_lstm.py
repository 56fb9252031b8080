"""BlockLSTM, which LSTMBlockFusedCell and the bridge's DynamicRNN run, in a compiled step."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")
TIMES, BATCH, INPUTS, CELLS = 6, 3, 4, 5
EPS = {"float32": 2.0**-23, "float16": 2.0**-10}


def cell(number, op, attrs, steps, dtype, feeds):
    """Outputs and gradients of one op."""
    draw = np.random.RandomState(number)
    shapes = {
        "x": [TIMES, BATCH, INPUTS], "cs_prev": [BATCH, CELLS], "h_prev": [BATCH, CELLS],
        "w": [INPUTS + CELLS, 4 * CELLS], "wci": [CELLS], "wcf": [CELLS], "wco": [CELLS], "b": [4 * CELLS],
    }  # fmt: skip
    given = {name: tf.placeholder(dtype, shape, "%s_%d" % (name, number)) for name, shape in shapes.items()}
    feeds.update((given[name].name, draw.randn(*shape).astype(dtype)) for name, shape in shapes.items())
    outputs = op(seq_len_max=tf.constant(steps, tf.int64), **given, **attrs)
    loss = tf.reduce_sum(outputs.h * outputs.h) + tf.reduce_sum(outputs.cs * draw.randn(CELLS).astype(dtype))
    names = list(given) if attrs.get("use_peephole") else ["x", "w", "b", "h_prev"]
    gradients = tf.gradients(loss, [given[name] for name in names])
    known = [*outputs, gradients.pop(0)]  # TensorFlow 2.21 leaves what is behind the last step as it finds it
    return [value[:steps] for value in known] + gradients


@pytest.mark.parametrize("dtype", list(EPS))
def test_a_block_of_steps_is_that_of_the_kernel(dtype):
    first, second = tf.raw_ops.BlockLSTM, tf.raw_ops.BlockLSTMV2
    cases = [
        (first, {}, TIMES), (first, {"cell_clip": 0.5, "forget_bias": 0.3}, TIMES),
        (first, {"use_peephole": True, "cell_clip": -1.0}, TIMES), (first, {}, TIMES - 2), (second, {}, TIMES),
    ]  # fmt: skip
    feeds = {}
    with tf.Graph().as_default() as graph:
        fetches = [t for k, (op, attrs, steps) in enumerate(cases) for t in cell(k, op, attrs, steps, dtype, feeds)]
    with tf.Session(graph=graph) as session:
        expected = session.run(fetches, feeds)
    actual = npu_shim.compile_step(graph, fetches, list(feeds))(feeds)
    for tensor, value, wanted in zip(fetches, actual, expected):
        # sums of 9 products, roundings of 6 steps on
        tolerance = 64 * EPS[dtype] * max(1, np.abs(wanted).max())
        np.testing.assert_allclose(np.float64(value), np.float64(wanted), 0, tolerance, err_msg=tensor.name)
