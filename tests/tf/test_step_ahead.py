"""Sums and products that interpreted steps tie to the loop behind them, so that XLA frees what they are made of."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.export import functions

jax = pytest.importorskip("jax", reason="JAX is not installed beside TensorFlow")

from npu_shim.step.control_flow import ahead  # noqa: E402

STEPS, BATCH, WIDTH, WORDS = 16, 8, 4, 512
DRAW = np.random.RandomState(3)


def weight(name, *shape):
    return tf.get_variable(name, initializer=np.float32(0.4 * DRAW.randn(*shape)), use_resource=True)


def recurrent(x):
    """A loop of products over [batch, steps, width]."""
    draw = tf.random_uniform_initializer(-0.5, 0.5, seed=5)
    return tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(WIDTH, kernel_initializer=draw), x, dtype=tf.float32)[0]


def words(x):
    """A language model: the gradient of its last layer's weights is smaller than the logits' gradient."""
    logits = tf.matmul(tf.reshape(recurrent(x), [-1, WIDTH]), weight("w", WIDTH, WORDS))
    labels = tf.cast(tf.range(STEPS * BATCH), tf.int32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def few_rows(x):
    """The gradient of the weights is larger than the rows that it is made of."""
    wide = tf.tile(recurrent(x)[:, -1], [1, WORDS])
    return tf.reduce_max(tf.matmul(wide, weight("w", WIDTH * WORDS, 2 * BATCH)))


def taken_by_the_loop(x):
    """The sum is the first value of the loop itself."""
    start = tf.reduce_sum(tf.matmul(x[:, 0], weight("w", WIDTH, WORDS)), 1, keepdims=True)
    end = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.tanh(v * v)), (0, start))[1]
    return tf.reduce_max(end + start)


# name -> (loss, what is tied to a loop)
LOSSES = {
    "a layer of words": (words, {"Mean", "MatMul"}),
    "few rows": (few_rows, set()),
    "taken by the loop": (taken_by_the_loop, set()),
}


def built(loss):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [BATCH, STEPS, WIDTH], "x")
        value = loss(x)
        fetches = [value, *tf.gradients(value, tf.trainable_variables())]
        tf.global_variables_initializer()
    return graph, [fetch.name for fetch in fetches]


@pytest.mark.parametrize(("name", "version"), [*((name, 1) for name in LOSSES), ("a layer of words", 2)])
def test_what_is_tied_to_a_loop_and_that_numbers_stay(name, version, monkeypatch):
    loss, wanted = LOSSES[name]
    tied, find = set(), ahead._ahead
    monkeypatch.setattr(ahead, "_ahead", lambda *given: [tied.add(node.op) or node for node in find(*given)])
    with sessions.control_flow(version):
        graph, fetches = built(loss)
    feeds = {"x:0": DRAW.randn(BATCH, STEPS, WIDTH).astype(np.float32)}
    with tf.Session(graph=graph) as session:
        session.run("init")
        expected = session.run(fetches, feeds)
        step = functions.as_jax(session, fetches, list(feeds))
        with jax.enable_x64(True):
            lowered = jax.jit(step).lower(step.state, feeds)
            _, fetched = lowered.compile()(step.state, feeds)
    for fetch, one in zip(fetches, expected):
        np.testing.assert_allclose(fetched[fetch], one, 1e-4, 1e-6 * max(1, np.abs(one).max()))
    assert tied == wanted
    product = "tensor<%dx%dxf32>" % (WIDTH, WORDS)
    barriers = [line for line in lowered.as_text().splitlines() if "optimization_barrier" in line and product in line]
    assert len(barriers) == (name == "a layer of words")
