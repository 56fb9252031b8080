"""Compiled steps with conditionals whose branches give different numbers of rows."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")
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


def looked_up(way, use_resource):
    """(fetches, names of variables, reads) of a step with a table for each optimizer, in the default graph."""
    ids, n = tf.placeholder(tf.int32, [3], "ids"), tf.placeholder(tf.int32, [], "n")
    trained = []
    names = OPTIMIZERS if (way, use_resource) == ("both", True) or os.environ.get("NPU_SHIM_NIGHTLY") else SOME
    for name in names:
        start = np.arange(1, 22, dtype=np.float32).reshape([7, 3]) / 8
        table = tf.get_variable(name, initializer=start, use_resource=use_resource)
        look = lambda: tf.reduce_sum(tf.square(tf.gather(table, ids)))  # noqa: E731, B023
        fewer = lambda: tf.reduce_sum(tf.gather(table, ids[:2]))  # noqa: E731, B023
        trained.append(OPTIMIZERS[name]().minimize(LOOKUPS[way](n, look, fewer)))
    variables = tf.global_variables()
    return [tf.group(trained)], [variable.op.name for variable in variables], [v.read_value() for v in variables]


@pytest.mark.parametrize(
    ("way", "version", "use_resource"),
    [("both", 1, False), ("outside_too", 1, False), *((way, 2, True) for way in LOOKUPS)],
)
def test_an_embedding_in_a_branch_is_trained_as_in_a_session(way, version, use_resource):
    """Regression: row 0 was taken for one of those that are looked up; every sparse update of two lookups was wrong."""
    with tf.Graph().as_default() as graph, sessions.control_flow(version):
        fetches, names, reads = looked_up(way, use_resource)
        init = tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, fetches, ["ids:0", "n:0"], initializer=init)
    with tf.Session(graph=graph) as session:
        session.run(init)
        for ids, n in (([1, 5, 4], 0), ([1, 5, 4], 1), ([2, 2, 2], 2), ([3, 1, 3], 4)):
            session.run(fetches, {"ids:0": ids, "n:0": n})
            step({"ids:0": ids, "n:0": n})
            state = step.state()
            for name, wanted in zip(names, session.run(reads)):
                np.testing.assert_allclose(state[name], wanted, 1e-5, 1e-6, err_msg="%s, %s" % (name, n))


def cond(some):
    return lambda n, v: tf.cond(n > 0, lambda: some(v), lambda: tf.identity(v))


def in_loop(n, v):
    def body(i, rows):
        chosen = tf.cond(n > 2, lambda: v[:2], lambda: tf.identity(rows))
        return i + 1, rows + tf.reduce_sum(chosen, 0)

    return tf.while_loop(lambda i, _: i < 2, body, (0, v), maximum_iterations=2)[1]


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
}
AS_IN_A_SESSION = {
    "sum": lambda rows: tf.reduce_sum(rows + 1, 0),
    "count": lambda rows: tf.cast(tf.shape(rows), tf.float32),
    "tail": lambda rows: tf.cast(tf.shape(rows[3:]), tf.float32),
    "sorted": lambda rows: tf.sort(rows[:, 0]),
    "unique": lambda rows: tf.cast(tf.size(tf.unique(tf.cast(rows[:, 0], tf.int32))[0]), tf.float32),
    "unique_with_counts": lambda rows: tf.cast(tf.unique_with_counts(tf.cast(rows[:, 0], tf.int32))[2], tf.float32),
    "where": lambda rows: tf.cast(tf.where(rows[:, 0] < 3.0), tf.float32),
    "segments": lambda rows: tf.math.unsorted_segment_sum(tf.exp(rows), tf.cast(rows[:, 0] * 0, tf.int32), 2),
}
REFUSED = {
    "last": (lambda rows: rows[-1], "StridedSlice"),
    "cumsum": (tf.cumsum, "Cumsum"),
    "slice": (lambda rows: tf.slice(rows, [1, 0], [-1, -1]), "Slice"),
    "eye": (lambda rows: tf.eye(tf.shape(rows)[0]), "MatrixDiagV3"),
}
BATCHES = [{"n:0": n, "x:0": np.random.RandomState(n).randint(1, 9, (5, 3)) / 2} for n in (1, 0, 3, 4, 2)]


def step_of(choice, version, ways):
    """(graph, fetches, initializer) of a step with each of `ways` to use the rows that a conditional gives."""
    with tf.Graph().as_default() as graph, sessions.control_flow(version):
        x, n = tf.placeholder(tf.float32, [5, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.ones([5, 3], np.float32), use_resource=True)
        rows = choice(n, w * x)
        return graph, [use(rows) for use in ways], tf.global_variables_initializer()


def assert_as_in_a_session(choice, version, ways):
    graph, fetches, init = step_of(choice, version, ways)
    step = npu_shim.compile_step(graph, fetches, ["n:0", "x:0"], initializer=init)
    with tf.Session(graph=graph) as session:
        session.run(init)
        for batch in BATCHES:
            for actual, wanted in zip(step(batch), session.run(fetches, batch)):
                assert actual.shape == wanted.shape
                np.testing.assert_allclose(actual, wanted, 1e-5)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", CHOICES)
def test_what_counts_the_rows_of_a_branch_is_as_in_a_session(name, version):
    assert_as_in_a_session(CHOICES[name], version, list(AS_IN_A_SESSION.values()))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", CHOICES)
def test_what_does_not_count_them_is_refused(name, version):
    """Regression: a step had rows that were not there, or ended the process."""
    for use, op in REFUSED.values():
        graph, fetches, init = step_of(CHOICES[name], version, [use])
        with pytest.raises(PlanError, match=r"\(%s\) takes a number of rows" % op):
            npu_shim.compile_step(graph, fetches, ["n:0", "x:0"], initializer=init)(BATCHES[0])


@pytest.mark.parametrize("version", [1, 2])
def test_branches_in_a_loop(version):
    assert_as_in_a_session(in_loop, version, [tf.identity])


@pytest.mark.parametrize("version", [1, 2])
def test_branches_of_equal_sizes_are_like_any_other_tensor(version):
    choice = lambda n, v: tf.cond(n > 0, lambda: v[:2], lambda: v[1:3])  # noqa: E731
    assert_as_in_a_session(choice, version, [use for use, _ in REFUSED.values()])


def gathered(n, v):
    return tf.gather(v, tf.range(n))


# (number, rows) to as many rows in one branch as a feed says: XLA knows how many, shape inference does not
FED = {
    "gathered": lambda n, v: tf.cond(n > 2, lambda: gathered(n, v), lambda: tf.identity(v)),
    "all_first": lambda n, v: tf.cond(n > 2, lambda: tf.identity(v), lambda: gathered(n, v)),
    "filled": lambda n, v: tf.cond(n > 2, lambda: tf.fill([n, 3], 2.0), lambda: tf.identity(v)),
    "nested": lambda n, v: tf.cond(n > 4, lambda: v * 2, lambda: FED["gathered"](n, v)),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", FED)
def test_branches_of_sizes_that_a_feed_says_are_refused(name, version):
    """Regression: what took them had rows that were not there, or ended the process."""
    graph, fetches, init = step_of(FED[name], version, [lambda rows: rows[-1]])
    said = "is a conditional whose branches give" if version == 2 or name == "all_first" else "counts from the end"
    with pytest.raises(PlanError, match=said):
        npu_shim.compile_step(graph, fetches, ["n:0", "x:0"], initializer=init)(BATCHES[2])


@pytest.mark.parametrize("version", [1, 2])
def test_branches_of_one_size_that_a_feed_says_run(version):
    choice = lambda n, v: tf.cond(n > 2, lambda: gathered(n + 1, v), lambda: gathered(n + 1, v * 2))  # noqa: E731
    assert_as_in_a_session(choice, version, [use for use, _ in REFUSED.values()])


def test_a_loop_of_steps_whose_results_have_no_known_size():  # the last step began with the first's variables
    xs, ps = np.float32([[1, 2, -1], [1, 1, 1], [2, -1, 0], [1, 1, 1]]), [True, True, False, False]

    def build():
        x, p = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.bool, [], "p")
        w, u = (tf.get_variable(name, initializer=np.float32([1, 2, 3]), use_resource=True) for name in "wu")
        loss = tf.reduce_sum(tf.cond(p, lambda: w * x, lambda: tf.gather(u, [2, 0, 1]) * x) * w)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, [w, u])]
        with tf.control_dependencies([loss, *gradients]):
            train_op = tf.train.GradientDescentOptimizer(0.125).minimize(loss)
        return [loss, *gradients, train_op], tf.global_variables_initializer()

    with sessions.control_flow(2), tf.Graph().as_default():
        fetches, init = build()
        with tf.Session() as session:
            session.run(init)
            step = npu_shim.compile_step(session, fetches, ["x", "p"], iterations_per_loop=4)
            for x, p in zip(xs, ps):
                *wanted, _ = session.run(fetches, {"x:0": x, "p:0": p})
            for result, expected in zip(step({"x": xs, "p": ps}), wanted):
                np.testing.assert_allclose(result, expected)
            for variable in tf.global_variables():
                np.testing.assert_allclose(step.state()[variable.op.name], session.run(variable))
