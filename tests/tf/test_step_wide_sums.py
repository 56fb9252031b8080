"""Sums of many numbers in float16 and bfloat16 are those of float32, rounded once: no sum stays where it is."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
import ml_dtypes  # noqa: E402
from step_runs import Step  # noqa: E402

MANY = 6000
RANDOM = np.random.RandomState(0)
GIVEN = (RANDOM.rand(MANY, 2) * 0.2 + 0.05).astype(np.float32)
CHOSEN = RANDOM.rand(MANY) > 0.2
IDS = np.sort(RANDOM.randint(0, 3, MANY)).astype(np.int32)
INDICES = np.stack([IDS, np.arange(MANY)], 1).astype(np.int64)
PLACES = RANDOM.permutation(MANY).astype(np.int32)


def image(x):
    return tf.reshape(x, [1, 60, 100, 2])


def sparse(x):
    return tf.SparseTensor(INDICES, x[:, 0], [3, MANY])


def _segment(x, chosen, of):
    return np.stack([of(x[PLACES][segment == IDS], 0) for segment in range(3)])


SUMS = {  # of x [n, 2], and rows of it that data chooses; the same of NumPy's float64
    "sum": (lambda x, rows: tf.reduce_sum(x, 0), lambda x, rows: x.sum(0)),
    "mean": (lambda x, rows: tf.reduce_mean(x, 0), lambda x, rows: x.mean(0)),
    "mean of several dimensions": (lambda x, rows: tf.reduce_mean(image(x), [0, 1, 2]), lambda x, rows: x.mean(0)),
    "mean of rows": (lambda x, rows: tf.reduce_mean(rows, 0), lambda x, rows: rows.mean(0)),
    "mean of all in rows": (lambda x, rows: tf.reduce_mean(rows), lambda x, rows: rows.mean()),
    "mean of columns": (lambda x, rows: tf.reduce_mean(tf.transpose(rows), 1), lambda x, rows: rows.mean(0)),
    "norm": (lambda x, rows: tf.norm(x / 8, axis=0), lambda x, rows: np.linalg.norm(x / 8, axis=0)),
    "gradient of a bias": (
        lambda x, rows: tf.raw_ops.BiasAddGrad(out_backprop=image(x)), lambda x, rows: x.sum(0),
    ),
    "tensors": (
        lambda x, rows: tf.add_n([x[at : at + 10] for at in range(0, MANY, 10)]),
        lambda x, rows: x.reshape(-1, 10, 2).sum(0),
    ),
    "segments of one": (
        lambda x, rows: tf.sparse_segment_sum(x, PLACES, IDS), lambda x, rows: _segment(x, rows, np.sum),
    ),
    "means of segments": (
        lambda x, rows: tf.sparse_segment_mean(x, PLACES, IDS), lambda x, rows: _segment(x, rows, np.mean),
    ),
    "means of neighbours": (
        lambda x, rows: tf.segment_mean(tf.gather(x, PLACES), IDS), lambda x, rows: _segment(x, rows, np.mean),
    ),
    "a row's sparse elements": (
        lambda x, rows: tf.sparse_reduce_sum(sparse(x), 1),
        lambda x, rows: np.bincount(IDS, x[:, 0]),
    ),
    "a sparse product": (
        lambda x, rows: tf.sparse_tensor_dense_matmul(sparse(x), tf.ones([MANY, 2], x.dtype)),
        lambda x, rows: np.repeat(np.bincount(IDS, x[:, 0])[:, None], 2, 1),
    ),
    "a cumulative sum": (lambda x, rows: tf.cumsum(x)[-3:], lambda x, rows: x.cumsum(0)[-3:]),
    "half the squares": (lambda x, rows: tf.nn.l2_loss(rows / 2), lambda x, rows: (rows * rows).sum() / 8),
    "segments in any order": (
        lambda x, rows: tf.math.unsorted_segment_sum(tf.gather(x, PLACES), IDS, 3),
        lambda x, rows: _segment(x, rows, np.sum),
    ),
    "scattered": (
        lambda x, rows: tf.scatter_nd(IDS[:, None], tf.gather(x, PLACES), [3, 2]),
        lambda x, rows: _segment(x, rows, np.sum),
    ),
    "gradient of a lookup": (
        lambda x, rows: _gradient(x, lambda w: tf.gather(w, IDS) * tf.gather(x, PLACES)),
        lambda x, rows: _segment(x, rows, np.sum),
    ),
    "gradient of a broadcast": (
        lambda x, rows: _gradient(x, lambda w: w[:1] * x)[0], lambda x, rows: x.sum(0),
    ),
    "a product": (lambda x, rows: tf.matmul(x, x, transpose_a=True), lambda x, rows: x.T @ x),
    "mean of a map": (
        lambda x, rows: tf.nn.avg_pool(image(x), [1, 60, 100, 1], [1, 1, 1, 1], "VALID"),
        lambda x, rows: x.mean(0).reshape(1, 1, 1, 2),
    ),
    "log of a sum": (lambda x, rows: tf.reduce_logsumexp(x, 0), lambda x, rows: np.log(np.exp(x).sum(0))),
    "statistics": (
        lambda x, rows: tf.nn.fused_batch_norm(image(x), [1.0, 1.0], [0.0, 0.0])[1], lambda x, rows: x.mean(0),
    ),
}  # fmt: skip


def _gradient(x, of):
    """With respect to a matrix [3, 2] of x's dtype."""
    w = tf.constant(np.ones((3, 2)), x.dtype)
    return tf.convert_to_tensor(tf.gradients(of(w), w)[0])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_sums_of_many(dtype):
    given = GIVEN.astype(dtype).astype(np.float64)
    with tf.Graph().as_default():
        x, chosen = tf.placeholder(tf.float32, [MANY, 2]), tf.placeholder(tf.bool, [MANY])
        low = tf.cast(x, tf.as_dtype(dtype))
        rows = tf.boolean_mask(low, chosen)
        sums = [tf.cast(tf.convert_to_tensor(of(low, rows)), tf.float32) for of, _ in SUMS.values()]
        results = Step(tf.get_default_graph(), sums, feeds=[x, chosen])({x: GIVEN, chosen: CHOSEN})
    epsilon = float(ml_dtypes.finfo(dtype).eps)
    for (name, (_, wanted)), got in zip(SUMS.items(), results):
        np.testing.assert_allclose(got, wanted(given, given[CHOSEN]), 2.5 * epsilon, err_msg=name)


def test_means_of_more_than_float16_counts_to():
    given = np.tile(GIVEN, (12, 1))  # 144,000 numbers, whose sum is 21,600
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, given.shape)
        low = tf.cast(x, tf.float16)
        means = [tf.reduce_mean(low), tf.reduce_mean(tf.boolean_mask(low, low[:, 0] > 0.01)), tf.reduce_mean(low * 8)]
        results = Step(tf.get_default_graph(), means, feeds=[x])({x: given})
    np.testing.assert_allclose(np.array(results, np.float64), given.mean() * np.array([1, 1, 8]), 2e-3)


def test_whole_numbers_beside_a_session():
    """Means are added up in 64 bits, and 8 bits count to no more than 256 classes."""
    given = RANDOM.randint(0, 255, (1000, 3)).astype(np.uint8)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.uint8, given.shape)
        chosen = tf.boolean_mask(tf.cast(x, tf.int32) * 2**23, x[:, 0] > 9)
        fetches = [
            tf.reduce_mean(x, 0), tf.reduce_mean(tf.cast(x, tf.int8)), tf.reduce_mean(tf.cast(x, tf.int32) * 2**23, 1),
            tf.reduce_mean(chosen), tf.reduce_mean(tf.transpose(chosen), 1), tf.one_hot(x, 300),
        ]  # fmt: skip
        results = Step(graph, fetches, feeds=[x])({x: given})
        with tf.Session() as session:
            wanted = session.run(fetches, {x: given})
    for fetch, got, want in zip(fetches, results, wanted):
        np.testing.assert_array_equal(got, want, err_msg=fetch.name)
        assert got.dtype == want.dtype
