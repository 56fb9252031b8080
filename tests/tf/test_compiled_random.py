"""Random ops of compiled steps, and what XLA does not check."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.session.clusters import unchecked

pytestmark = sessions.COMPILED


@pytest.fixture
def log(caplog):
    with caplog.at_level(logging.WARNING, "npu_shim"):
        yield caplog


def drawn(build, steps=2):
    """What a step draws in its first runs, made twice."""
    with tf.Graph().as_default() as graph:
        with tf.control_dependencies([tf.no_op()]):
            fetch = build()
    steps_of = [npu_shim.compile_step(graph, fetch) for _ in range(2)]
    return [[step() for _ in range(steps)] for step in steps_of]


LOGITS = np.log(np.float32([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))


def test_a_seeded_multinomial_repeats_itself():
    one, other = drawn(lambda: tf.random.multinomial(LOGITS, 5000, seed=3, output_dtype=tf.int32))
    assert np.array_equal(one, other)
    assert not np.array_equal(one[0], one[1])
    assert one[0].dtype == np.int32
    shares = np.stack([np.mean(one[0] == k, 1) for k in range(3)], 1)
    assert np.abs(shares - np.exp(LOGITS)).max() < 5 * np.sqrt(0.25 / 5000)


def test_a_seeded_shuffle_repeats_itself():
    one, other = drawn(lambda: tf.random.shuffle(np.arange(200).reshape(100, 2), seed=3))
    assert np.array_equal(one, other)
    assert not np.array_equal(one[0], one[1])
    assert np.array_equal(one[0][np.argsort(one[0][:, 0])], np.arange(200).reshape(100, 2))


def test_seeds_in_functions_that_the_step_does_not_call_hold(log):
    with tf.Graph().as_default() as graph:
        noisy = tf.data.Dataset.from_tensors(np.ones(4, "f")).map(lambda x: x + tf.random_uniform([4], seed=3))
        rows = tf.data.make_one_shot_iterator(noisy).get_next()
        x = tf.placeholder(tf.float32, [4])
        loss = tf.reduce_sum(x * 2.0)
    assert any("random_uniform" in node.name for f in graph.as_graph_def().library.function for node in f.node_def)
    assert rows.shape == x.shape
    assert npu_shim.compile_step(graph, loss, feeds=[x])({x: np.ones(4, "f")}) == 8
    assert "seeds" not in log.text


@pytest.mark.parametrize(
    ("scope", "said"),
    [("mine", "it leaves out 1 PrintV2"), ("loss/report_stuck", "does not say that steps are skipped in a row")],
)
def test_prints_that_are_left_out_are_told_of(log, scope, said):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4])
        with tf.name_scope(scope), tf.control_dependencies([tf.print("told", tf.gather(x, 1))]):
            loss = tf.reduce_sum(x)
    npu_shim.compile_step(graph, loss, feeds=[x])({x: np.ones(4, "f")})
    assert log.text.count("the compiled step does not") == log.text.count(said) == 1


def test_what_xla_does_not_check_is_said_once_with_its_nodes(log):
    with tf.Graph().as_default() as graph:
        rows = tf.gather(tf.constant([1.0, 2.0]), tf.placeholder(tf.int32, [], "k"), name="rows")
        quotient = tf.floordiv(tf.placeholder(tf.int32, [], "n"), tf.placeholder(tf.int32, [], "d"), name="quotient")
        with tf.control_dependencies([tf.Assert(rows < 0.0, ["rows"], name="asserted")]):
            checked = tf.check_numerics(rows / 0.0, "not finite", name="checked")
    steps = [npu_shim.compile_step(graph, [rows, quotient, checked], ["k", "n", "d"]) for _ in range(2)]
    row, number, infinite = steps[0]({"k": 5, "n": 7, "d": 0})
    assert (row, number, infinite) == (2.0, -1, np.inf)  # a session ends with an error for each
    assert log.text.count("takes the last row for an index that is out of range") == 1
    for name in ("rows", "quotient", "checked", "asserted/Assert"):
        assert "'%s'" % name in log.text


SINGULAR = np.float32([[1, 2], [2, 4]])
# a part of what the line says -> (what is built of x and of integers i, x, i); TensorFlow refuses each
REFUSED = {
    "the last row": [
        (lambda x, i: tf.gather_nd(x, i[:, None]), SINGULAR, [0, 7]),
        (lambda x, i: tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], i, [2, 2]), np.ones([1, 2, 2, 1]), [9]),
    ],
    "a negative power": [(lambda x, i: tf.pow(i, -i), [1.0], [2, 3])],
    "NaN for a label": [
        (lambda x, i: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=i, logits=x), SINGULAR, [0, 7])
    ],
    "an update": [(lambda x, i: tf.tensor_scatter_nd_update(x, i[:, None], [7.0, 8.0]), [1.0, 2.0], [0, 7])],
    "sparse indices": [
        (lambda x, i: tf.sparse_to_dense(i, [4], x), [1.0, 2.0, 3.0], [0, 1, 9]),
        (lambda x, i: tf.sparse_to_dense(i, [4], x), [1.0, 2.0, 3.0], [2, 1, 0]),
    ],
    "a permutation": [(lambda x, i: tf.invert_permutation(i), [1.0], [0, 0, 1])],
    "the end of a sequence": [
        (lambda x, i: tf.reverse_sequence(x, i, seq_axis=1, batch_axis=0), np.ones([2, 3]), [2, 5])
    ],
    "negative numbers of a histogram": [
        (lambda x, i: tf.math.bincount(i, minlength=4, maxlength=4), [1.0], [-1, 2])
    ],
    "any integer": [(lambda x, i: tf.random.uniform([2], i[0], i[1], tf.int32), [1.0], [5, 2])],
    "a band is wider": [(lambda x, i: tf.matrix_band_part(x, i[0], i[1]), SINGULAR, [9, 9])],
    "cannot be inverted": [
        (lambda x, i: tf.matrix_inverse(x), SINGULAR, [0]),
        (lambda x, i: tf.matrix_solve(x, x), SINGULAR, [0]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_what_tensorflow_refuses_and_xla_does_not_is_said(said, log):
    for build, x, i in REFUSED[said]:
        unchecked._said.cache_clear()
        log.clear()
        feeds = {"x:0": np.asarray(x, np.float32), "i:0": np.asarray(i, np.int32)}
        with tf.Graph().as_default() as graph:
            result = build(*[tf.placeholder(value.dtype, value.shape, name[0]) for name, value in feeds.items()])
        with tf.Session(graph=graph) as session, pytest.raises(tf.errors.OpError):
            session.run(result, feeds)
        npu_shim.compile_step(graph, [result], list(feeds))(feeds)
        (line,) = [text for text in map(logging.LogRecord.getMessage, log.records) if "ends it with an error" in text]
        assert said in line


def test_arithmetic_of_shapes_is_not_spoken_of(log):
    """The gradient of a mean divides a size by a size, and tf.tensordot gathers sizes of axes; nor divisions by 7."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 3], "x")
        sizes = tf.shape(x, name="sizes")
        half = tf.fill([tf.gather(sizes, [0], name="rows")[0] // tf.size(sizes, name="rank")], 1.0)
        tf.add(half, tf.cast(tf.cast(x[0, 0], tf.int32) % 7, tf.float32), name="added")
    assert npu_shim.compile_step(graph, "added:0", {"x": [4, 3]})({"x": np.ones([4, 3], np.float32)}).shape == (2,)
    assert not log.records


def test_float_divisions_and_masks_are_not_spoken_of(log):
    with tf.Graph().as_default() as graph:
        tf.floordiv(tf.placeholder(tf.float32, [], "n"), 2.0, name="quotient")
    npu_shim.compile_step(graph, "quotient:0", ["n"])
    assert not log.records
