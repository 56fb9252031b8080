"""Loops of TensorFlow 1 with gradients in a compiled step: how often they run at most, what is in them."""

import functools
import operator

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.xla.passes.control_flow import overruns
from npu_shim.xla.passes.shapes import trip_counts, while_counts

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]


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


REPORTS = {
    "an assertion about floats": lambda a: tf.Assert(tf.reduce_all(a > -99.0), [a]),
    "an assertion with words": lambda a: tf.Assert(tf.reduce_all(a > -99.0), ["no"]),
    "a print": lambda a: tf.print("a is", a),
    "a print of words": lambda a: tf.print("here"),
    "a print in a cond": lambda a: tf.cond(a[0] > 1.0, lambda: tf.print("more", a * 2.0), tf.no_op),
}
LOOPS = {
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
    "cond": lambda x, p, v: loop(lambda a: tf.cond(p, lambda: a * a * v, lambda: a - v), x),
    "cond on data": lambda x, p, v: loop(
        lambda a: tf.cond(tf.reduce_sum(a) > 3.2, lambda: tf.tanh(a * a) * v, lambda: a - v), x
    ),
    "cond in cond": lambda x, p, v: loop(
        lambda a: tf.cond(p, lambda: tf.cond(a[0] > 0.5, lambda: tf.tanh(a * v), lambda: a * v * a), lambda: a - v), x
    ),
    "map_fn": lambda x, p, v: tf.map_fn(lambda e: tf.cond(p, lambda: e * e, lambda: e * 2.0), x * v),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_and_its_gradient_are_the_sessions(name):
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.bool, [], "p")
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        y = LOOPS[name](x, p, v)
        fetches = [y, tf.gradients(tf.reduce_sum(y), [v])[0]]
        tf.variables_initializer([v], name="init")
    step = npu_shim.compile_step(graph, fetches, ["x", "p"], initializer="init")
    with tf.Session(graph=graph) as session:
        session.run("init")
        for number in range(2):
            fed = {"x:0": np.float32([1.0, 0.5, 0.25]) + number, "p:0": number == 0}
            for actual, expected in zip(step(fed), session.run(fetches, fed)):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def in_a_loop(x, p, v):
    return loop(lambda a: loop(squash(v), a, lambda j, b: tf.logical_and(j < 3, b[0] > -9.0)), x)


# loops that may end before their bound
BOUNDED = [(LOOPS["minimum"], 1), (LOOPS["float, added up"], 1), (in_a_loop, 1), (LOOPS["minimum"], 2), (in_a_loop, 2)]


def with_a_bound(monkeypatch, graph, fetches, off=0, checks=overruns.check):
    """What a step gives where each bound of a loop is so much off."""

    def shifted(at, name):
        count = getattr(at, name)
        told = lambda *args: None if count(*args) is None else count(*args) + off  # noqa: E731
        patch.setattr(at, name, told)

    with monkeypatch.context() as patch:
        shifted(trip_counts._Test, "count")
        shifted(while_counts, "at_most")
        patch.setattr(overruns, "check", checks)
        return npu_shim.compile_step(graph, fetches, ["x"], initializer="init")({"x:0": np.float32([4.5, 0.5, 0.25])})


@pytest.mark.parametrize(("build", "version"), BOUNDED)
def test_a_loop_that_runs_longer_than_was_inferred_gives_nan(build, version, monkeypatch):
    """XLA writes what a buffer has no room for over its last item, and gradients were wrong without a line."""
    with sessions.control_flow(version):
        graph, fetches = with_gradient(build)
    if build is LOOPS["minimum"]:
        unchecked = with_a_bound(monkeypatch, graph, fetches, checks=lambda *_: None)
        assert all(map(np.array_equal, with_a_bound(monkeypatch, graph, fetches), unchecked))
    value, gradient = with_a_bound(monkeypatch, graph, fetches, off=-1)
    assert np.isnan(value).all()
    assert np.isnan(gradient).all()


def rows_of_lookups():
    """What training makes of a table whose rows a loop of version 1 looks up; nothing else is kept."""
    x = tf.placeholder(tf.float32, [3], "x")
    table = tf.get_variable("table", initializer=np.ones([8, 3], np.float32), use_resource=True)
    ids = tf.cast(x, tf.int32)
    looked_up = loop(lambda a: a + tf.gather(table, ids), tf.ones([3, 3]), lambda i, _: i < tf.minimum(4, ids[0]))
    train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(looked_up))
    with tf.control_dependencies([train]):
        return tf.gather(table.read_value(), [4])  # the row of x's 4.5: 1 - 4


def rows_of_a_list(missing=0):
    """What a loop writes to a TensorArray of `missing` rows too few, with two conditions."""
    x = tf.placeholder(tf.float32, [3], "x")
    rows = tf.TensorArray(tf.float32, 3 - missing, dynamic_size=True, element_shape=[3])
    body = lambda i, rows: (i + 1, rows.write(i, x * tf.cast(i, tf.float32)))  # noqa: E731
    ends = lambda i, _: tf.logical_and(i < 3, i < 9 + tf.cast(x[0], tf.int32))  # noqa: E731
    return tf.while_loop(ends, body, (0, rows))[1].stack()[-1]


ROWS = [(rows_of_lookups, rows_of_lookups, 1, [[-3.0] * 3]),
        (rows_of_a_list, functools.partial(rows_of_a_list, 1), 2, np.float32([9.0, 1.0, 0.5]))]  # fmt: skip


@pytest.mark.parametrize(("fits", "lacks", "version", "expected"), ROWS)
def test_rows_that_a_loop_has_no_room_for_give_nan(fits, lacks, version, expected, monkeypatch):
    """Regression: the first rows of a gradient were dropped, and the last one of a list written over."""
    actual = []
    for off, build in enumerate((fits, lacks)):
        with sessions.control_flow(version), tf.Graph().as_default() as graph:
            fetches = [build()]
            tf.group(tf.global_variables_initializer(), name="init")
        actual += with_a_bound(monkeypatch, graph, fetches, off=-off)
    np.testing.assert_array_equal(actual[0], expected)
    assert np.isnan(actual[1]).all()


def counts(build):
    with tf.Graph().as_default() as graph:
        build()
    return trip_counts.at_most(graphdef.read(graph.as_graph_def()).graph)


ENDS = [
    (lambda i, _: i < 7, 0, 1, 7),
    (lambda i, _: i <= 7, 0, 2, 4),
    (lambda i, _: i > 1, 8, -3, 3),
    (lambda i, _: tf.logical_and(i < 9, i < 5), 0, 1, 5),
    (lambda i, _: i < 0, 3, 1, 0),
    (lambda i, _: i < 7.25, 0.5, 0.25, 27),
    (lambda i, _: i < 2.5, 0.0, 0.1, 26),
    (lambda i, _: i > tf.maximum(3, tf.minimum(3, 1)), 10, -1, 7),
]


@pytest.mark.parametrize(("ends", "first", "step", "expected"), ENDS)
def test_conditions_tell_how_often_at_most(ends, first, step, expected):
    actual = counts(lambda: loop(lambda a: a + 1, 0, ends, first, step))
    assert actual == {"while/while_context": expected}
    with tf.Graph().as_default() as graph:
        loop(lambda a: a + 1, 0, ends, first, step)
        ops = {node.op for node in graph.as_graph_def().node}
    is_alone = type(first) is int and ops.isdisjoint(["LogicalAnd", "Maximum"])
    assert trip_counts.exact(graphdef.read(graph.as_graph_def()).graph) == ({*actual} if is_alone else set())
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(loop(lambda a: a + 1, 0, ends, first, step)) == expected


def pairs_of(dtype):
    """Starts, steps and limits of loops, arrays of one length: round numbers, as people write them."""
    if dtype.kind == "i":
        grid = [(a, b, n) for a in (-3, 0, 2) for b in (-4, -1, 1, 2, 7) for n in range(-9, 30)]
    else:
        steps = [number / 100 for number in range(1, 40)] + [-0.1, -0.05, -0.25]
        grid = [(a, b, n / 4) for a in (0.0, 1.0, -0.5) for b in steps for n in range(-2, 30)]
    return np.array(grid, dtype).T


def counted_by_tensorflow(compares, adds, starts, steps, limits, most=1500):
    """How often each of many loops runs, in one loop of a session; -1 for those without an end."""
    with tf.Graph().as_default(), tf.Session() as session:
        limits, steps = tf.constant(limits), tf.constant(steps)
        goes_on = lambda at: compares(at[0], limits)  # noqa: E731
        after = tf.while_loop(
            lambda *at: tf.reduce_any(goes_on(at)),
            lambda at, count: (tf.where(goes_on([at]), adds(at, steps), at), count + tf.cast(goes_on([at]), tf.int32)),
            (tf.constant(starts), tf.zeros_like(limits, tf.int32)), maximum_iterations=most,
        )  # fmt: skip
        counts = session.run(after[1])
    return np.where(counts == most, -1, counts)


ADDS = {operator.add: tf.add, operator.sub: tf.subtract}
COMPARES = {"Less": tf.less, "LessEqual": tf.less_equal, "Greater": tf.greater, "GreaterEqual": tf.greater_equal}
COUNTERS = [
    ("Less", operator.add, "float32"), ("LessEqual", operator.add, "float32"), ("Greater", operator.sub, "float32"),
    ("GreaterEqual", operator.sub, "float64"), ("Less", operator.sub, "int32"), ("GreaterEqual", operator.add, "int64"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "adds", "dtype"), COUNTERS)
def test_steps_and_limits_are_counted_as_tensorflow_counts_them(op, adds, dtype):
    """Regression: of 3,900 ordinary pairs in float32, 67 took an iteration more than exact arithmetic says."""
    starts, steps, limits = pairs_of(np.dtype(dtype))
    sign = -1 if op.startswith("Greater") else 1
    numbers = sign * starts, steps, sign * limits
    told = [trip_counts.iterations(op, adds, *row) for row in zip(*numbers)]
    told = np.array([-1 if count is None else count for count in told])
    runs = counted_by_tensorflow(COMPARES[op], ADDS[adds], *numbers)
    assert (told > 1).sum() > len(told) // 6
    np.testing.assert_array_equal(told[told >= 0], runs[told >= 0])
    assert (runs[told < 0] < 2).all()  # they step away from the limit: who runs once or never is not counted


UNKNOWN = [
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i > tf.minimum(3, tf.placeholder(tf.int32, [])), 10, -1),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i < tf.maximum(3, tf.placeholder(tf.int32, []))),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i < 2, tf.constant(0, tf.float16), tf.constant(0.1, tf.float16)),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i < tf.placeholder(tf.int32, [])),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: tf.logical_or(i < 3, i < 5)),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i < 3, 0, -1),
    lambda: loop(lambda a: a + 1, 0, lambda i, _: i < tf.random_uniform([], 1, 3, tf.int32)),
    lambda: tf.while_loop(lambda i: i < 8, lambda i: i * 2, (1,)),
]


@pytest.mark.parametrize("build", UNKNOWN)
def test_what_conditions_do_not_tell(build):
    assert counts(build) == {}


def test_a_loop_that_data_bound_is_named_with_the_way_out():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        y = loop(lambda a: loop(lambda b: tf.tanh(b * x), a, lambda j, b: b[0] > 0.1), x)
        fetch = tf.gradients(y, [x])[0]
    step = npu_shim.compile_step(graph, fetch, [x])
    with pytest.raises(npu_shim.PlanError, match="keeps values of loop 'while/while/while_context'"):
        step({"x:0": np.ones(3)})


def test_a_gradient_that_waits_for_its_loop():  # the counter of its iterations waited as well, a loop for itself
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        y = loop(lambda a: tf.tanh(a * a), x)
        with tf.control_dependencies([tf.group(y)]):
            fetch = tf.gradients(y, [x])[0]
    step = npu_shim.compile_step(graph, fetch, [x])
    with tf.Session(graph=graph) as session:
        expected = session.run(fetch, {x: [0.25, 0.5, 0.75]})
    np.testing.assert_allclose(step({"x:0": [0.25, 0.5, 0.75]}), expected, rtol=1e-4)


def test_a_gradient_that_waits_for_its_loop_through_another():
    """The other loop passes its result on by its own back edge, and the first one waited for itself."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        y = loop(lambda a: tf.tanh(a * a), x)
        rows = tf.TensorArray(tf.float32, 3).unstack(y)
        written = tf.while_loop(
            lambda i, _: i < 3, lambda i, to: (i + 1, to.write(i, rows.read(i))), (0, tf.TensorArray(tf.float32, 3))
        )[1].stack()
        with tf.control_dependencies([tf.group(written)]):
            fetch = tf.gradients(y, [x])[0]
    step = npu_shim.compile_step(graph, [fetch, written], [x])
    with tf.Session(graph=graph) as session:
        expected = session.run([fetch, written], {x: [0.25, 0.5, 0.75]})
    np.testing.assert_allclose(step({"x:0": [0.25, 0.5, 0.75]}), expected, rtol=1e-4)


def fed_back(table, ids):
    """A decoder that looks up what it gave before."""
    body = lambda i, words, h: (i + 1, (words + i) % 8, tf.tanh(h + tf.gather(table, words)))  # noqa: E731
    return tf.while_loop(lambda i, *_: i < tf.minimum(4, ids[0]), body, (0, ids, tf.ones([5, 3])))[2]


LOOKUPS = {  # table [8, 3] and ids [5] -> what is trained
    "rows of each iteration": lambda table, ids: loop(lambda a: a * tf.gather(table, ids), tf.ones([5, 3])),
    "fed back": fed_back,
    "map_fn": lambda table, ids: tf.map_fn(lambda word: tf.reduce_sum(tf.gather(table, word)), ids, dtype=tf.float32),
}


def lookups(build, use_resource):
    """(Graph, fetches) of a training step by Adam, whose sparse update sums the rows of an id."""
    with tf.Graph().as_default() as graph:
        start = tf.constant(np.random.RandomState(4).uniform(0.5, 1.5, [8, 3]).astype(np.float32))
        table = tf.get_variable("table", initializer=start, use_resource=use_resource)
        loss = tf.reduce_sum(tf.square(build(table, tf.placeholder(tf.int32, [5], "ids"))))
        fetches = [loss, tf.train.AdamOptimizer(0.1).minimize(loss)]
        tf.global_variables_initializer()
    return graph, fetches


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_in_loops_are_trained_as_in_the_session(name, use_resource):
    """Regression: TensorFlow appends each iteration's rows to the gradient, which XLA refused in its own words."""
    graph, fetches = lookups(LOOKUPS[name], use_resource)
    step = npu_shim.compile_step(graph, fetches, ["ids"], initializer="init")
    with tf.Session(graph=graph) as session:
        session.run("init")
        for first in (2, 3, 7):  # 2: the loop of `fed_back` ends early
            ids = {"ids:0": [first, 1, 1, 5, 0]}
            np.testing.assert_allclose(step(ids)[0], session.run(fetches, ids)[0], rtol=1e-4)


def test_lookups_in_a_loop_that_data_bound_are_named():
    count = lambda table, ids: tf.while_loop(  # noqa: E731
        lambda i, _: i < ids[0], lambda i, a: (i + 1, a + tf.gather(table, ids)), (0, tf.zeros([5, 3]))
    )[1]
    graph, fetches = lookups(count, True)
    step = npu_shim.compile_step(graph, fetches, ["ids"], initializer="init")
    with pytest.raises(npu_shim.PlanError, match=r"all iterations.*how often the loop runs: give tf\.while_loop"):
        step({"ids:0": [2, 1, 1, 5, 0]})


OF_ANY_ROWS = {
    "one side without a gradient": lambda x, p, v: loop(lambda a: tf.cond(p, lambda: a * v, lambda: tf.tanh(a)), x),
    "one side from outside": lambda x, p, v: loop(lambda a: tf.cond(a[0, 0] > 0.5, lambda: a * v, lambda: x), x),
    "zeros": lambda x, p, v: loop(
        lambda a: tf.cond(a[0, 0] > 0.5, lambda: tf.zeros([tf.shape(a)[0], 3]) + a, lambda: x * a * v), x
    ),
}


@pytest.mark.parametrize("name", OF_ANY_ROWS)
def test_a_cond_in_a_loop_whose_rows_the_graph_does_not_know(name):
    graph, fetches = with_gradient(OF_ANY_ROWS[name], [None, 3])
    step = npu_shim.compile_step(graph, fetches, {"x": [2, 3], "p": []}, initializer="init")
    with tf.Session(graph=graph) as session:
        session.run("init")
        for number in range(2):
            fed = {"x:0": np.float32([[1.0, 0.5, 0.25], [0.5, 0.2, 0.1]]) + number, "p:0": number == 0}
            for actual, expected in zip(step(fed), session.run(fetches, fed)):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def log_sums(v, x):
    return tf.foldl(lambda a, e: tf.reduce_logsumexp(tf.expand_dims(a, 1) + e * v, [0]), tf.stack([x, x * 2.0]), x)


IN_BRANCHES = {
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


def with_gradient(make, shape=(3,)):
    """(graph, [value, gradient])."""
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, shape, "x"), tf.placeholder(tf.bool, [], "p")
        v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), use_resource=True)
        y = make(x, p, v)
        tf.variables_initializer([v], name="init")
        return graph, [y, tf.gradients(tf.reduce_sum(y), [v])[0]]


@pytest.mark.parametrize("name", IN_BRANCHES)
def test_a_loop_on_a_side_that_is_known_and_its_gradient_are_the_sessions(name):
    graph, fetches = with_gradient(IN_BRANCHES[name])
    with tf.Session(graph=graph) as session:
        session.run("init")
        for value in (True, False):
            step = npu_shim.compile_step(graph, fetches, ["x"], constants={"p": value}, initializer="init")
            fed = {"x:0": np.float32([1.0, 0.5, 0.25])}
            for actual, expected in zip(step(fed), session.run(fetches, {**fed, "p:0": value})):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_loop_that_tests_the_counter_of_the_loop_around_it_has_the_sessions_gradient():
    def make(x, p, v):
        def body(i, a):
            inner = lambda j, b: tf.logical_and(j < 2, i < 3)  # noqa: E731
            return i + 1, tf.sin(tf.while_loop(inner, lambda j, b: (j + 1, tf.tanh(b * v)), (0, a))[1] * v)

        return tf.while_loop(lambda i, a: i < 6, body, (0, x))[1]

    graph, fetches = with_gradient(make)
    fed = {"x:0": np.float32([1.0, 0.5, 0.25])}
    step = npu_shim.compile_step(graph, fetches, ["x"], initializer="init")
    with tf.Session(graph=graph) as session:
        session.run("init")
        for actual, expected in zip(step(fed), session.run(fetches, fed)):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_loop_on_a_side_that_data_decide_is_named_with_the_way_out():
    graph, fetches = with_gradient(IN_BRANCHES["one side"])
    step = npu_shim.compile_step(graph, fetches, ["x", "p"], initializer="init")
    with pytest.raises(npu_shim.PlanError, match=r"stands in a tf.cond, .* its predicate 'p', .*`constants`"):
        step({"x:0": np.ones(3, "f"), "p:0": True})


def test_a_loop_of_version_2_on_data_is_named_with_the_way_out():
    """Regression: XLA's own words, of a tensor list."""
    with sessions.control_flow(2), tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        gradient = tf.gradients(loop(tf.square, x, lambda _, a: tf.reduce_sum(a) < 9.0), x)[0]
    with pytest.raises(PlanError, match=r"keeps a value of each iteration .* give tf.while_loop its max"):
        npu_shim.compile_step(graph, [gradient], [x])({x: np.ones(4)})
