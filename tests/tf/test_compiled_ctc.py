"""CTC loss and its gradient in a compiled step, beside TensorFlow's kernel."""

import numpy as np
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = sessions.COMPILED
TIMES, BATCH, CLASSES = 9, 5, 6
EPS = 2.0**-23
LABELS = [[0, 1, 1, 2], [3], [2, 2], [4, 4, 4], [0, 1, 2, 3, 0, 1, 2]]
STEPS = [9, 4, 6, 5, 8]


def graph_of(*attrs, scale=1.0):
    graph, fetches = tf.Graph(), []
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None, BATCH, CLASSES], "x")
        labels, steps = tf.sparse_placeholder(tf.int32, name="labels"), tf.placeholder(tf.int32, [BATCH], "steps")
        for given in attrs:
            losses = tf.nn.ctc_loss(labels, x * scale, steps, **given)
            fetches += [losses, tf.gradients(losses, x, grad_ys=tf.range(1.0, BATCH + 1))[0]]
    return graph, fetches


def feed(labels=LABELS, steps=STEPS):
    at = [[row, 2 * column] for row, label in enumerate(labels) for column in range(len(label))]  # with gaps
    return {
        "x:0": np.random.RandomState(3).randn(TIMES, BATCH, CLASSES), "steps:0": steps,
        "labels/indices:0": np.array(at, np.int64).reshape(-1, 2),
        "labels/values:0": np.concatenate([np.array(label, np.int32) for label in labels]),
        "labels/shape:0": [BATCH, 2 * TIMES],
    }  # fmt: skip


def compare(attrs, given, scale=1.0):
    graph, fetches = graph_of(*attrs, scale=scale)
    with tf.Session(graph=graph) as session:
        expected = session.run(fetches, given)
    del given["labels/shape:0"]
    actual = npu_shim.compile_step(graph, fetches, list(given))(given)
    for value, wanted in zip(actual, expected):
        # sums of 2 TIMES terms in log space, of logs up to 10 * scale
        np.testing.assert_allclose(value, wanted, rtol=64 * EPS, atol=64 * TIMES * scale * EPS)
    return expected


def test_the_loss_is_that_of_the_kernel():
    attrs = {}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True}
    for losses in compare(attrs, feed())[::2]:
        assert np.isfinite(losses).all()
    compare([{}], feed(), scale=20.0)  # probabilities down to exp(-100): the sums are of logs


def test_labels_that_do_not_fit():
    """They are left out where that is asked; three times the same label need a blank in between."""
    losses, gradient = compare([{"ignore_longer_outputs_than_inputs": True}], feed(steps=[3, 4, 6, 0, 9]))
    assert losses[0] == losses[3] == 0
    assert not gradient[:, 0].any()
    losses, _ = compare([{}], feed(steps=[9, 4, 6, 3, 8]))
    assert np.isinf(losses[3])
