"""Ops to which later TensorFlows added attributes: of 1.15.5's, which have none of these, the engine takes defaults."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine

pytestmark = [sessions.NEEDS_ENGINE[0], pytest.mark.usefixtures("patched", "own_graph")]


def rounded(h):
    return (tf.quantization.quantize_and_dequantize(h, -2.0, 2.0, range_given=True),)


def decoded(h):
    (labels,), scores = tf.nn.ctc_greedy_decoder(tf.reshape(h, [4, 2, 3]), [4, 3])
    return h, labels.indices, labels.values, scores


@pytest.mark.parametrize("kind", [rounded, decoded])
def test_they_are_in_the_program(kind):
    x = np.random.RandomState(0).randn(8, 3).astype("f")
    w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.1))
    first, *others = kind(tf.matmul(x, w))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(first)))
    results = []
    for way in ("session", "pjrt"):
        with sessions.opened(way) as session:
            results.append([*session.run([first, *others, train])[:-1], session.run(w)])
    sessions.assert_close(*results, rtol=1e-5, atol=1e-6)
    known = [*vars(session)[engine.ENGINE].known.values()]
    assert [one.step is not None for one in known if one.programs] == [True], [one.reason for one in known]
