"""Rows that data count inside of functions, branches and loops of compiled steps, beside a session."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

pytestmark = sessions.COMPILED
X = np.array([[1, 5, 2], [3, 1, 4], [2, 7, 1], [6, 3, 3]], np.float32)


def masked(v):
    return tf.boolean_mask(v, v[:, 1] > 2.0)


ROWS = {
    "sum": lambda v: tf.reduce_sum(masked(v) * 2, 0),
    "mean": lambda v: tf.reduce_sum(masked(v), 0) / tf.cast(tf.shape(masked(v))[0] + 1, tf.float32),
    "both": lambda v: tf.reduce_sum(tf.concat([masked(v), v[:1] + 1], 0), 0),
    "cumulative": lambda v: tf.reduce_sum(tf.cumsum(masked(v)), 0),
    "from the end": lambda v: tf.reduce_sum(tf.concat([masked(v), v], 0)[-2:], 0),
    "a falling range": lambda v: v[0] * tf.cast(tf.reduce_sum(tf.range(6, tf.shape(masked(v))[0], -1)), tf.float32),
    "next": lambda v: tf.reduce_sum(tf.ones([tf.shape(masked(v))[0] + 1, 3]) * v[0], 0),
    "quotient": lambda v: tf.reduce_sum(tf.ones([12 // (tf.shape(masked(v))[0] + 1), 3]) * v[0], 0),
    "difference": lambda v: tf.reduce_sum(tf.ones([6 - tf.shape(masked(v))[0], 3]) * v[0], 0),
}
# how a body comes to run
WAYS = {
    "function": lambda f, v, n: tf.function(f)(v),
    "cond": lambda f, v, n: tf.cond(n > 0, lambda: f(v), lambda: v[0]),
    "switch_case": lambda f, v, n: tf.switch_case(n, [lambda: v[0], lambda: f(v)]),
    "loop": lambda f, v, n: tf.while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s + f(v)), (0, tf.zeros([3])),
                                          maximum_iterations=2)[1],
    "cond_in_function": lambda f, v, n: tf.function(lambda v: tf.cond(n > 0, lambda: f(v), lambda: v[0]))(v),
    "function_in_loop": lambda f, v, n: tf.while_loop(
        lambda i, _: i < n, lambda i, s: (i + 1, s + tf.function(f)(v)), (0, tf.zeros([3])), maximum_iterations=2)[1],
}  # fmt: skip


@pytest.mark.by_day("cond_in_function", "loop", "switch_case")
@pytest.mark.parametrize("way", WAYS)
def test_rows_in_a_body(way):
    """Those that it counts, and those that it takes; what some of it trains."""
    with sessions.control_flow(2), tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.full([4, 3], 0.5, np.float32), use_resource=True)
        v = w * x * 2
        rows, fetches = masked(v), [WAYS[way](f, v, n) for f in ROWS.values()]
        fetches.append(WAYS[way](lambda v: tf.reduce_sum(tf.concat([rows, v], 0)[-2:], 0), v, n))
        if "loop" not in way:
            loss = tf.reduce_sum(tf.square(fetches[0]) + fetches[1])
            with tf.control_dependencies([fetch.op for fetch in fetches]):
                fetches.append(tf.train.GradientDescentOptimizer(0.001).minimize(loss))
        init = tf.global_variables_initializer()
    assert_as_in_a_session(graph, fetches, [{x: values, n: 1} for values in (X, X * 0, X[::-1])], init, 1e-4, 1e-4)


def looped(body):
    shapes = tf.TensorShape([]), tf.TensorShape([None, 3])
    return lambda x, n: tf.while_loop(
        lambda i, _: i < 2, lambda i, rows: (i + 1, body(x, rows)), (0, x), shapes, maximum_iterations=2
    )[1]


def in_loop(x, n):
    def body(i, rows):
        return i + 1, rows + tf.reduce_sum(tf.cond(n > 2, lambda: x[:2], lambda: tf.identity(rows)), 0)

    return tf.while_loop(lambda i, _: i < 2, body, (0, x), maximum_iterations=2)[1]


# loops that begin with all rows: their number was that of all
LOOPS = {
    "mask": looped(lambda x, rows: masked(rows)),
    "other": looped(lambda x, rows: masked(x)),
    "slice": looped(lambda x, rows: rows[: tf.reduce_sum(tf.cast(x[:, 1] > 2.0, tf.int32))]),
    "branches": in_loop,
}


@pytest.mark.parametrize("version", [1, 2])
def test_loops_that_begin_with_all_rows_and_count_some(version):
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        fetches = [make(x, n) for make in LOOPS.values()]
    assert_as_in_a_session(graph, fetches, [{x: X, n: 1}, {x: X[::-1], n: 3}, {x: X * 0, n: 3}])


def cond(some):
    return lambda n, v: tf.cond(n > 0, lambda: some(v), lambda: tf.identity(v))


def gathered(n, v):
    return tf.gather(v, tf.range(n))


# (number, rows) to rows of which there are more in one branch
CHOICES = {
    "some_first": cond(lambda v: v[1:3]),
    "all_first": lambda n, v: tf.cond(n > 0, lambda: tf.identity(v), lambda: v[1:3]),
    "none": cond(lambda v: v[:0]),
    "nested": lambda n, v: tf.cond(n > 0, lambda: cond(lambda v: v[:2])(n - 2, v), lambda: v * 2),
    "case": lambda n, v: tf.case([(n > 3, lambda: v[:2]), (n > 2, lambda: v * 2)], default=lambda: v[:3]),
    "function": lambda n, v: tf.function(cond(lambda v: v[1:3]))(n, v),
    "function_in_branch": cond(tf.function(lambda v: v[1:3])),
    "mask": cond(lambda v: tf.boolean_mask(v, v[:, 0] > 2.0)),
    "gathered": lambda n, v: tf.cond(n > 2, lambda: gathered(n, v), lambda: tf.identity(v)),
    "all of them first": lambda n, v: tf.cond(n > 2, lambda: tf.identity(v), lambda: gathered(n, v)),
    "equal": lambda n, v: tf.cond(n > 0, lambda: v[:2], lambda: v[1:3]),
    "of one fed size": lambda n, v: tf.cond(n > 2, lambda: gathered(n + 1, v), lambda: gathered(n + 1, v * 2)),
}
COUNTED = {
    "sum": lambda rows: tf.reduce_sum(rows + 1, 0),
    "count": lambda rows: tf.cast(tf.shape(rows), tf.float32),
    "tail": lambda rows: tf.cast(tf.shape(rows[3:]), tf.float32),
    "sorted": lambda rows: tf.sort(rows[:, 0]),
    "unique": lambda rows: tf.cast(tf.size(tf.unique(tf.cast(rows[:, 0], tf.int32))[0]), tf.float32),
    "unique_with_counts": lambda rows: tf.cast(tf.unique_with_counts(tf.cast(rows[:, 0], tf.int32))[2], tf.float32),
    "where": lambda rows: tf.cast(tf.where(rows[:, 0] < 3.0), tf.float32),
    "segments": lambda rows: tf.math.unsorted_segment_sum(tf.exp(rows), tf.cast(rows[:, 0] * 0, tf.int32), 2),
    "cumsum": tf.cumsum,
    "slice": lambda rows: tf.slice(rows, [1, 0], [-1, -1]),
}
OF_FED_SIZES = ("gathered", "all of them first", "of one fed size")  # in a branch of version 2 none is known
# what counts more than one kind of branch takes long to compile
OF_SOME = ("sum", "count", "cumsum")


@pytest.mark.by_day("2")
@pytest.mark.parametrize("version", [1, 2])
def test_branches_of_more_and_fewer_rows(version):
    """Regression: a step had rows that were not there, or ended the process."""
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [5, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.ones([5, 3], np.float32), use_resource=True)
        fetches = []
        for name, choice in CHOICES.items():
            rows = choice(n, w * x)
            if version == 2 and name in OF_FED_SIZES:
                continue
            uses = COUNTED if name == "some_first" else OF_SOME
            fetches += [COUNTED[use](rows) for use in uses]
        init = tf.global_variables_initializer()
    batches = [{n: k, x: np.random.RandomState(k).randint(1, 9, (5, 3)) / 2} for k in (1, 0, 3, 4, 2)]
    assert_as_in_a_session(graph, fetches, batches, init)


OPTIMIZERS = {
    "gradient_descent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5),
    "centered_rmsprop": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(0.1),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "shrunk_ftrl": lambda: tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
    "proximal_adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.1),
    "proximal_descent": lambda: tf.train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.1),
    "dual_averaging": lambda: tf.train.AdagradDAOptimizer(0.1, tf.train.get_or_create_global_step()),
}
# by day all of them where both branches look up, these elsewhere
SOME = ("gradient_descent", "adam", "shrunk_ftrl")
NOTHING = lambda: tf.constant(1.0)  # noqa: E731
# where a branch looks rows of a table up: (number, the lookup, one of fewer rows) to a loss
LOOKUPS = {
    "first": lambda n, look, fewer: tf.cond(n > 0, look, NOTHING),
    "second": lambda n, look, fewer: tf.cond(n > 0, NOTHING, look),
    "both": lambda n, look, fewer: tf.cond(n > 0, look, fewer),
    "outside_too": lambda n, look, fewer: tf.cond(n > 0, look, NOTHING) + fewer(),
    "one_of_three": lambda n, look, fewer: tf.switch_case(n % 3, [NOTHING, look, fewer]),
}


@pytest.mark.parametrize(
    ("ways", "version", "use_resource"),
    [
        (("both",), 1, False),
        (("both", "one_of_three"), 2, True),
        pytest.param(tuple(LOOKUPS), 1, False, marks=pytest.mark.nightly),
        pytest.param(tuple(LOOKUPS), 2, True, marks=pytest.mark.nightly),
    ],
)
def test_embeddings_in_branches_are_trained_as_in_a_session(ways, version, use_resource):
    """Regression: row 0 was taken for one of those that are looked up; every sparse update of two lookups was wrong."""
    trained = []
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        ids, n = tf.placeholder(tf.int32, [3], "ids"), tf.placeholder(tf.int32, [], "n")
        for way in ways:
            every = (way, use_resource) == ("both", True) or os.environ.get("NPU_SHIM_NIGHTLY")
            for name in OPTIMIZERS if every else SOME:
                start = np.arange(1, 22, dtype=np.float32).reshape([7, 3]) / 8
                table = tf.get_variable("%s_%s" % (way, name), initializer=start, use_resource=use_resource)
                look = lambda: tf.reduce_sum(tf.square(tf.gather(table, ids)))  # noqa: E731, B023
                fewer = lambda: tf.reduce_sum(tf.gather(table, ids[:2]))  # noqa: E731, B023
                loss = LOOKUPS[way](n, look, fewer)
                trained.append(OPTIMIZERS[name]().minimize(loss, var_list=[table]))
        fetches, init = [tf.group(trained)], tf.global_variables_initializer()
    fed = [{ids: i, n: k} for i, k in (([1, 5, 4], 0), ([1, 5, 4], 1), ([2, 2, 2], 2), ([3, 1, 3], 4))]
    assert_as_in_a_session(graph, fetches, fed, init)
