"""Loops of TensorFlow 1 with gradients in compiled steps, beside a session: several kinds of them are one step."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]


def loop(body, start, ends=lambda i, _: i < 3, first=0, step=1):
    return tf.while_loop(ends, lambda i, a: (i + step, body(a)), (first, start))[1]


def squash(v):
    return lambda a: tf.tanh(a * v)


def behind(report, v):
    """The body of a loop that waits for a report, with a constant that waits for nothing else."""

    def body(a):
        with tf.control_dependencies([report(a)]):
            return a * tf.constant(2.0) * v

    return body


def log_sums(v, x):
    return tf.foldl(lambda a, e: tf.reduce_logsumexp(tf.expand_dims(a, 1) + e * v, [0]), tf.stack([x, x * 2.0]), x)


def that_tests_the_counter_around_it(x, p, v):
    def body(i, a):
        inner = lambda j, b: tf.logical_and(j < 2, i < 3)  # noqa: E731
        return i + 1, tf.sin(tf.while_loop(inner, lambda j, b: (j + 1, tf.tanh(b * v)), (0, a))[1] * v)

    return tf.while_loop(lambda i, a: i < 6, body, (0, x))[1]


REPORTS = {
    "an assertion about floats": lambda a: tf.Assert(tf.reduce_all(a > -99.0), [a]),
    "an assertion with words": lambda a: tf.Assert(tf.reduce_all(a > -99.0), ["no"]),
    "a print": lambda a: tf.print("a is", a),
    "a print of words": lambda a: tf.print("here"),
    "a print in a cond": lambda a: tf.cond(a[0] > 1.0, lambda: tf.print("more", a * 2.0), tf.no_op),
}
ENDS = {
    **{name: lambda x, p, v, report=report: loop(behind(report, v), x) for name, report in REPORTS.items()},
    "bound in the condition": lambda x, p, v: loop(squash(v), x),
    "int64": lambda x, p, v: loop(squash(v), x, lambda i, _: i < np.int64(3), tf.constant(0, tf.int64)),
    "float": lambda x, p, v: loop(squash(v), x, lambda i, _: i < 2.5, 0.0, 1.0),
    "float, added up": lambda x, p, v: loop(squash(v), x, lambda i, _: i < 2.5, 0.0, 0.1),
    "downwards": lambda x, p, v: loop(squash(v), x, lambda i, _: i > 0, 5, -2),
    "the other way round": lambda x, p, v: loop(squash(v), x, lambda i, _: tf.greater_equal(4, i), 0, 2),
    "minimum": lambda x, p, v: loop(squash(v), x, lambda i, _: i < tf.minimum(4, tf.cast(x[0], tf.int32))),
    "nested": lambda x, p, v: loop(lambda a: loop(squash(v), a), x),
    "nested, by shapes": lambda x, p, v: loop(lambda a: loop(squash(v), a, lambda j, _: j < tf.shape(x)[0]), x),
    "the counter around it": that_tests_the_counter_around_it,
}
CONDITIONALS = {
    "cond": lambda x, p, v: loop(lambda a: tf.cond(p, lambda: a * a * v, lambda: a - v), x),
    "cond on data": lambda x, p, v: loop(
        lambda a: tf.cond(tf.reduce_sum(a) > 3.2, lambda: tf.tanh(a * a) * v, lambda: a - v), x
    ),
    "cond in cond": lambda x, p, v: loop(
        lambda a: tf.cond(p, lambda: tf.cond(a[0] > 0.5, lambda: tf.tanh(a * v), lambda: a * v * a), lambda: a - v), x
    ),
    "map_fn": lambda x, p, v: tf.map_fn(lambda e: tf.cond(p, lambda: e * e, lambda: e * 2.0), x * v),
    "one side without a gradient": lambda x, p, v: loop(lambda a: tf.cond(p, lambda: a * v, lambda: tf.tanh(a)), x),
    "one side from outside": lambda x, p, v: loop(lambda a: tf.cond(a[0] > 0.5, lambda: a * v, lambda: x), x),
}
IN_CONDITIONALS = {
    "one side": lambda x, p, v: tf.cond(p, lambda: loop(squash(v), x), lambda: x - v),
    "both sides": lambda x, p, v: tf.cond(p, lambda: loop(squash(v), x), lambda: loop(lambda a: a * a * v, x)),
    "nested": lambda x, p, v: tf.cond(p, lambda: loop(lambda a: loop(squash(v), a), x), lambda: x - v),
    "cond in it": lambda x, p, v: tf.cond(
        p, lambda: loop(lambda a: tf.cond(a[0] > 0.5, lambda: tf.tanh(a * v), lambda: a * v * a), x), lambda: x - v
    ),
    "cond in a loop": lambda x, p, v: loop(lambda a: tf.cond(p, lambda: loop(squash(v), a), lambda: a - v), x),
    "cond in a cond": lambda x, p, v: tf.cond(
        p, lambda: tf.cond(tf.shape(x)[0] > 2, lambda: loop(squash(v), x), lambda: x * v), lambda: x - v
    ),
    "fold": lambda x, p, v: tf.cond(p, lambda: log_sums(v, x), lambda: x - v),
}


@pytest.mark.parametrize("kinds", [ENDS, CONDITIONALS, IN_CONDITIONALS], ids=["ends", "conditionals", "in them"])
def test_loops_and_their_gradients_are_the_sessions(kinds):
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.bool, [], "p")
        fetches = []
        for number, build in enumerate(kinds.values()):
            with tf.variable_scope("loop%d" % number):
                v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=number % 2 == 0)
                y = build(x, p, v)
                fetches += [y, tf.gradients(tf.reduce_sum(y), [v])[0]]
        init = tf.global_variables_initializer()
    fed = [{x: np.float32([1.0, 0.5, 0.25]) + number, p: number == 0} for number in range(2)]
    assert_as_in_a_session(graph, fetches, fed, init, 1e-5, 1e-6)


def test_a_gradient_that_waits_for_its_loop():
    """The counter of its iterations waited as well, a loop for itself; so did one behind another loop."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        y = loop(lambda a: tf.tanh(a * a), x)
        with tf.control_dependencies([tf.group(y)]):
            fetches = [tf.gradients(y, [x])[0]]
        y = loop(lambda a: tf.tanh(a * a), x)
        rows = tf.TensorArray(tf.float32, 3).unstack(y)
        written = tf.while_loop(
            lambda i, _: i < 3, lambda i, to: (i + 1, to.write(i, rows.read(i))), (0, tf.TensorArray(tf.float32, 3))
        )[1].stack()
        with tf.control_dependencies([tf.group(written)]):
            fetches += [tf.gradients(y, [x])[0], written]
    assert_as_in_a_session(graph, fetches, [{x: [0.25, 0.5, 0.75]}], rtol=1e-4)


@pytest.mark.parametrize("version", [1, 2])
def test_a_loop_of_whose_iterations_nobody_knows_how_many_there_are_is_refused(version):
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        y = loop(lambda a: a * 2.0, x * v, lambda _, a: tf.reduce_sum(a) < 9.0)
        gradient = tf.gradients(y, [x])[0]
        init = tf.global_variables_initializer()
    with pytest.raises(npu_shim.PlanError, match=r"node '\S*' \(\w+\): .*keeps a value of each iteration.*; run the"):
        npu_shim.compile_step(graph, [gradient], [x], initializer=init)({x: np.ones(3, "f")})


def fed_back(table, ids):
    """A decoder that looks up what it gave before."""
    body = lambda i, words, h: (i + 1, (words + i) % 8, tf.tanh(h + tf.gather(table, words)))  # noqa: E731
    return tf.while_loop(lambda i, *_: i < tf.minimum(4, ids[0]), body, (0, ids, tf.ones([5, 3])))[2]


LOOKUPS = {  # table [8, 3] and ids [5] -> what is trained
    "rows of each iteration": lambda table, ids: loop(lambda a: a * tf.gather(table, ids), tf.ones([5, 3])),
    "fed back": fed_back,
    "map_fn": lambda table, ids: tf.map_fn(lambda word: tf.reduce_sum(tf.gather(table, word)), ids, dtype=tf.float32),
}


@pytest.mark.nightly  # test_step_conditionals.py has them
def test_lookups_in_loops_are_trained_as_in_the_session():
    """By Adam, whose sparse update sums the rows of an id."""
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [5], "ids")
        start = tf.constant(np.random.RandomState(4).uniform(0.5, 1.5, [8, 3]).astype(np.float32))
        fetches = []
        for number, build in enumerate(LOOKUPS.values()):
            table = tf.get_variable("table%d" % number, initializer=start, use_resource=number != 1)
            loss = tf.reduce_sum(tf.square(build(table, ids)))
            fetches += [loss, tf.train.AdamOptimizer(0.1).minimize(loss, var_list=[table])]
        init = tf.global_variables_initializer()
    fed = [{ids: [first, 1, 1, 5, 0]} for first in (2, 3, 7)]  # 2: the loop of `fed_back` ends early
    assert_as_in_a_session(graph, fetches, fed, init, 1e-4, 1e-5)
