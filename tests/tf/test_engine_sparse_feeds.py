"""Sparse tensors with as many values as a batch has: one program of the engine serves many numbers of them."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.engine.runtime import sparse_feeds

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("patched", "control_flow_of_version_1")]
ROWS, WORDS, SIZE = 6, 9, 4
NUMBERS = [5, 9, 12, 1, 16, 17, 0, 11]  # of values


def of_hashes():
    """The session makes ids of words."""
    words = tf.sparse_placeholder(tf.string, [ROWS, 5])
    ids = tf.SparseTensor(words.indices, tf.strings.to_hash_bucket_fast(words.values, WORDS), [ROWS, 5])
    return [words], ids, None


def of_ids():
    ids = tf.sparse_placeholder(tf.int64, [ROWS, 5])
    return [ids], ids, None


def of_weighted_ids():
    ids, weights = tf.sparse_placeholder(tf.int64, [ROWS, 5]), tf.sparse_placeholder(tf.float32, [ROWS, 5])
    return [ids, weights], ids, weights


def of_labels():
    labels = tf.sparse_placeholder(tf.int32, [ROWS, 5])
    return [labels], labels, None


def mean(table, ids, weights):
    return tf.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner="mean")


def root(table, ids, weights):
    return tf.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner="sqrtn")


def in_order(table, ids, weights):
    """What the interpreter does not take as rows."""
    return tf.nn.embedding_lookup_sparse(table, tf.sparse.reorder(ids), None, combiner="mean")


def dense(table, ids, weights):
    words = tf.sparse.to_dense(ids, default_value=0)
    return tf.reduce_max(tf.nn.embedding_lookup(table, words) * tf.cast(words > 0, tf.float32)[:, :, None], 1)


def of_all(table, ids, weights):
    """What would show a row that is not there: a mean, a smallest element, and a number of all."""
    rows = tf.nn.embedding_lookup(table, ids.values)
    number = tf.cast(tf.size(ids.values), tf.float32) + 0.1 * tf.reduce_sum(tf.cast(ids.indices, tf.float32))
    waves = tf.SparseTensor(ids.indices, tf.sin(tf.cast(ids.values, tf.float32)), [ROWS, 5])
    number += tf.reshape(tf.sparse.reduce_sum(waves), [])
    return tf.reduce_sum(rows, 0)[None] / (number + 1.0) + tf.reduce_min(tf.concat([rows, table], 0), 0) + number


def ctc(table, labels, weights):
    """Labels of each row of a batch, as those of speech and of lines of text."""
    to_logits = np.random.RandomState(3).randn(WORDS * SIZE, 12 * ROWS * (WORDS + 1)).astype("f")
    logits = tf.reshape(tf.matmul(tf.reshape(table, [1, -1]), to_logits), [12, ROWS, WORDS + 1])
    return tf.nn.ctc_loss(labels, logits, [12] * ROWS)[:, None] / 10.0


def batches(fed, numbers):
    draw = np.random.RandomState(0)
    for number in numbers:
        first = np.arange(ROWS) * 5 if fed[0].dtype == tf.int32 else []  # no row without a label
        others = draw.choice(np.setdiff1d(np.arange(ROWS * 5 - 1), first), max(number - len(first), 0), replace=False)
        at = np.sort(np.concatenate([first, others]).astype(np.int64))
        number = len(at)
        indices = np.stack([at // 5, at % 5], 1).astype(np.int64).reshape(-1, 2)
        values = {tf.int64: draw.randint(1, WORDS, number), tf.float32: draw.rand(number) + 0.5}
        values[tf.int32] = np.int32(values[tf.int64])
        values[tf.string] = np.array(["word %d" % n for n in values[tf.int64]], object)
        yield {one: tf.SparseTensorValue(indices, values[one.dtype], [ROWS, 5]) for one in fed}


def trained(kind, given, lookup, numbers=NUMBERS):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fed, ids, weights = given()
        table = tf.get_variable("table", [WORDS, SIZE], initializer=tf.random_normal_initializer(seed=2))
        hidden = tf.layers.dense(lookup(table, ids, weights), 1, kernel_initializer=tf.ones_initializer())
        loss = tf.reduce_mean(tf.square(hidden - 1.0))
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
        with sessions.opened(kind) as session:
            losses = [session.run([loss, train], batch)[0] for batch in batches(fed, numbers)]
            return losses, session.run(tf.trainable_variables()), session


CASES = [
    (of_ids, mean), (of_ids, dense), (of_ids, of_all), (of_hashes, mean), (of_weighted_ids, mean),
    (of_weighted_ids, root), (of_labels, ctc),
]  # fmt: skip


@pytest.mark.by_day("of_ids-of_all", "of_labels-ctc")
@pytest.mark.parametrize(("given", "lookup"), CASES)
def test_few_programs_serve_many_numbers_of_values(given, lookup, caplog):
    logging.getLogger("npu_shim").propagate = True
    wanted, plain, _ = trained("session", given, lookup)
    with caplog.at_level(logging.INFO, "npu_shim"):
        actual, variables, session = trained("pjrt", given, lookup)
    np.testing.assert_allclose(actual, wanted, 1e-5)
    sessions.assert_close(variables, plain, 1e-4, 1e-6)
    assert "each number of sparse values has a program" not in caplog.text
    (known,) = [known for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    padded = [key for key in known.programs if len(key) > 3]
    # two of the first numbers, then sizes of 16 and 32
    assert {size[0] for key in padded for size in key[1]} - {2} == {16, 32}, list(known.programs)
    assert None not in known.programs.values()
    assert len(padded) <= 3
    assert len(known.programs) - len(padded) == sparse_feeds.MANY - 1


def test_what_the_interpreter_does_not_take_as_rows_has_a_program_for_each_number(caplog):
    logging.getLogger("npu_shim").propagate = True
    wanted, plain, _ = trained("session", of_ids, in_order, NUMBERS[:4])
    with caplog.at_level(logging.INFO, "npu_shim"):
        actual, variables, session = trained("pjrt", of_ids, in_order, NUMBERS[:4])
    np.testing.assert_allclose(actual, wanted, 1e-5)
    sessions.assert_close(variables, plain, 1e-4, 1e-6)
    assert caplog.text.count("each number of sparse values has a program") == 1
    (known,) = [known for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    assert {len(key) for key in known.programs} == {3}
    assert len(known.programs) == 4


def test_what_is_padded():
    feeds = {"x": tf.float32, "i": tf.int64, "v": tf.int64, "w": tf.float32, "j": tf.int64}
    shapes = [((4, 2), (n, 2), (n,), (n,), (4, 2)) for n in (3, 5, 7)]
    (bundle,) = sparse_feeds.bundles_among(feeds, shapes)
    assert bundle == sparse_feeds.Bundle("i", ("v", "w"))
    assert sparse_feeds.bundles_among(feeds, shapes[:2] + shapes[:1]) == ()  # two numbers
    given = {"x": np.ones((4, 2)), "i": np.arange(34).reshape(17, 2), "v": np.ones(17, int), "w": np.ones(17, "f")}
    assert sparse_feeds.fits((bundle,), given)
    padded = sparse_feeds.padded((bundle,), given)
    assert {name: value.shape[0] for name, value in padded.items()} == {"x": 4, "i": 32, "v": 32, "w": 32}
    assert (padded["i"][17:] == -1).all()
    assert (padded["v"][17:] == 0).all()
    assert not sparse_feeds.fits((bundle,), {**given, "v": np.ones(16, int)})
    assert not sparse_feeds.fits((bundle,), {**given, "i": given["i"] - 3})
