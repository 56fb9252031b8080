"""Compiled steps with tensors whose number of rows is data inside of functions, branches and loops of version 2."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.export.programs import hlo_module
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla import step_function

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_2"),
]
X = np.array([[1, 5, 2], [3, 1, 4], [2, 7, 1], [6, 3, 3]], np.float32)


def masked(v):
    return tf.boolean_mask(v, v[:, 1] > 2.0)


# what XLA computes wrongly of rows that the data count -> op of the node that is named
UNSOUND = {
    "cumsum": (lambda v: tf.reduce_sum(tf.cumsum(masked(v)), 0), "Cumsum"),
    "end": (lambda v: tf.reduce_sum(tf.concat([masked(v), v], 0)[-2:], 0), "StridedSlice"),
    "range": (lambda v: v[0] * tf.cast(tf.reduce_sum(tf.range(6, tf.shape(masked(v))[0], -1)), tf.float32), "Range"),
}
SOUND = {
    "sum": lambda v: tf.reduce_sum(masked(v) * 2, 0),
    "mean": lambda v: tf.reduce_sum(masked(v), 0) / tf.cast(tf.shape(masked(v))[0] + 1, tf.float32),
    "both": lambda v: tf.reduce_sum(tf.concat([masked(v), v[:1] + 1], 0), 0),
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


def step_of(f, way, train=False):
    """(graph, fetches, feeds, initializer) of a step with `f` in a body."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.full([4, 3], 0.5, np.float32), use_resource=True)
        rows = WAYS[way](f, w * x * 2, n)
        loss = tf.reduce_sum(rows if train else w)
        fetches = [rows, tf.train.GradientDescentOptimizer(0.1).minimize(loss), w.read_value()]
        return graph, fetches, [x, n], tf.global_variables_initializer()


def assert_refused(graph, fetches, feeds, init, match):
    with pytest.raises(PlanError, match=match):
        npu_shim.compile_step(graph, fetches, feeds, initializer=init)({"x:0": X, "n:0": 1})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", UNSOUND)
def test_what_xla_computes_wrongly_is_refused(name, way):
    f, op = UNSOUND[name]
    assert_refused(*step_of(f, way), r"\(%s\) takes a (number of rows|size)" % op)


def assert_as_in_a_session(graph, fetches, feeds, init):
    step = npu_shim.compile_step(graph, fetches, feeds, initializer=init)
    with tf.Session(graph=graph) as session:
        session.run(init)
        for values in (X, X * 0, X[::-1]):
            batch = {"x:0": values, "n:0": 1}
            wanted = session.run(fetches[0], batch)
            session.run(fetches[1], batch)  # in a run of both, an inlined function may read w behind the update
            np.testing.assert_allclose(step(batch)[0], wanted, 1e-5)
            np.testing.assert_allclose(step.state()["w"], session.run(fetches[2], batch), 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SOUND)
def test_what_heeds_the_number_of_rows_is_as_in_a_session(name, way):
    assert_as_in_a_session(*step_of(SOUND[name], way))


def test_a_function_with_a_mask_is_trained_as_in_a_session():
    assert_as_in_a_session(*step_of(SOUND["sum"], "function", train=True))


def test_the_gradient_of_a_function_that_joins_rows_is_refused():
    graph, fetches, feeds, init = step_of(SOUND["both"], "function", train=True)
    with pytest.raises(PlanError, match=r"concat_grad/Slice' \(Slice\) takes a number of rows"):
        npu_shim.compile_step(graph, fetches, feeds, initializer=init)({"x:0": X, "n:0": 1})


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_a_body_takes_are_looked_at_in_it(way):
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.ones([4, 3], np.float32), use_resource=True)
        rows = masked(w * x)
        last = WAYS[way](lambda v: tf.reduce_sum(tf.concat([rows, v], 0)[-2:], 0), w * 1, n)
        train, init = tf.assign_add(w, w), tf.global_variables_initializer()
    with pytest.raises(PlanError, match=r"\(StridedSlice\) takes a number of rows"):
        npu_shim.compile_step(graph, [last, train], [x, n], initializer=init)({"x:0": X, "n:0": 1})


# sizes that may be more for fewer rows -> op that is named
FALLING = {
    "quotient": (lambda n: 12 // (n + 1), "FloorDiv"),
    "remainder": (lambda n: n % 4, "FloorMod"),
    "comparison": (lambda n: tf.cast(n < 3, tf.int32) * 5, "Less"),
    "distance": (lambda n: tf.abs(n - 8), "Abs"),
    "choice": (lambda n: tf.where(n > 2, n, 6 - n), "Select"),
    "lookup": (lambda n: tf.gather([5, 4, 3, 2, 1, 0, 6], n), "GatherV2"),
}
RISING = {
    "next": lambda n: n + 1,
    "least": lambda n: tf.minimum(n, 3),
    "twice": lambda n: n * 2,
}
REST = {
    "inside": lambda n, flag: tf.cond(flag > 0, lambda: tf.ones([6 - n]), lambda: tf.zeros([6 - n])),
    "outside": lambda n, flag: (lambda m: tf.cond(flag > 0, lambda: tf.ones([m]), lambda: tf.ones([m])))(6 - n),
}


def step_of_size(f, way):
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.ones([4, 3], np.float32), use_resource=True)
        rows = tf.shape(masked(w * x))[0]
        total = WAYS[way](lambda v: tf.reduce_sum(tf.ones([f(rows), 3]), 0), w * 1, n)
        return graph, [total, tf.assign_add(w, w * 0)], [x, n], tf.global_variables_initializer()


@pytest.mark.parametrize("way", ["function", "cond"])
@pytest.mark.parametrize("name", FALLING)
def test_a_size_that_may_be_more_for_fewer_rows_is_refused(name, way):
    """Regression: XLA took what it is for the most rows for the most, and wrote over the memory behind it."""
    f, op = FALLING[name]
    assert_refused(*step_of_size(f, way), r"\(%s\) gives for the most rows, though it may give more for fewer" % op)


@pytest.mark.parametrize("way", ["function", "cond"])
@pytest.mark.parametrize("name", RISING)
def test_a_size_that_is_the_most_for_the_most_rows(name, way):
    graph, fetches, feeds, init = step_of_size(RISING[name], way)
    step = npu_shim.compile_step(graph, fetches, feeds, initializer=init)
    with tf.Session(graph=graph) as session:
        session.run(init)
        for values in (X, X * 0, X[::-1], X + 9):
            batch = {"x:0": values, "n:0": 1}
            np.testing.assert_array_equal(step(batch)[0], session.run(fetches[0], batch))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", REST)
def test_a_difference_of_rows_is_no_size_in_a_branch(name, version):
    """Regression: in the branches XLA bounded 6 - n by what it is for the most rows."""
    with sessions.control_flow(version):
        graph, fetches, feeds, init = step_with(lambda x, n: REST[name](tf.shape(masked(x))[0], n))
    with pytest.raises(PlanError, match=r"whose number of rows|number of rows that depends|may give more for fewer"):
        npu_shim.compile_step(graph, fetches, feeds, initializer=init)({"x:0": X, "n:0": 1})


def test_a_size_that_a_loop_hands_to_its_gradient_is_refused():
    """Regression: the gradient of a slice in a loop had rows that were not there."""
    with sessions.control_flow(1), tf.Graph().as_default() as graph:
        x, lengths = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [2], "lengths")
        w = tf.get_variable("w", initializer=np.ones([4, 3], np.float32), use_resource=True)
        rows = tf.map_fn(lambda n: tf.reduce_sum((x * w)[:n], 0), lengths, dtype=tf.float32)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows))
        step = npu_shim.compile_step(graph, train, [x, lengths], initializer=tf.global_variables_initializer())
    with pytest.raises(PlanError, match=r"Sum_grad/BroadcastTo' \(BroadcastTo\) takes a size from .*StackPopV2"):
        step({"x:0": X, "lengths:0": [1, 3]})


def test_a_difference_of_rows_is_a_size_in_a_function():
    graph, fetches, feeds, init = step_of_size(lambda n: 6 - n, "function")
    step = npu_shim.compile_step(graph, fetches, feeds, initializer=init)
    for values, rows in ((X, 3), (X * 0, 0)):
        np.testing.assert_array_equal(step({"x:0": values, "n:0": 1})[0], [6.0 - rows] * 3)


def step_with(build):
    """(graph, fetches, feeds, initializer) of a step that fetches the number of rows that `build` gives."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 3], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.ones([4, 3], np.float32), use_resource=True)
        fetches = [tf.shape(build(x, n))[0], tf.assign_add(w, w)]
        return graph, fetches, [x, n], tf.global_variables_initializer()


def looped(body):
    shapes = tf.TensorShape([]), tf.TensorShape([None, 3])
    return lambda x, n: tf.while_loop(
        lambda i, _: i < 2, lambda i, rows: (i + 1, body(x, rows)), (0, x), shapes, maximum_iterations=2
    )[1]


# loops that begin with all rows
LOOPS = {
    "mask": looped(lambda x, rows: masked(rows)),
    "other": looped(lambda x, rows: masked(x)),
    "slice": looped(lambda x, rows: rows[: tf.reduce_sum(tf.cast(x[:, 1] > 2.0, tf.int32))]),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_begins_with_all_rows_and_counts_some_is_refused(name, version):
    """Regression: their number was that of all rows; the engine's values had rows that were not there."""
    with sessions.control_flow(version):
        graph, fetches, feeds, init = step_with(LOOPS[name])
    with pytest.raises(PlanError, match="whose number of rows depends on the data behind an iteration"):
        npu_shim.compile_step(graph, fetches, feeds, initializer=init)({"x:0": X, "n:0": 1})


def exported(build):
    graph, fetches, *_ = step_with(build)
    names = [fetches[0].name, fetches[1].op.name]
    step = step_function.build(graph, names, {"x:0": [4, 3], "n:0": []}, values={"w": np.ones([4, 3])}, device="CPU")
    return hlo_module(step, "default")


def test_a_program_whose_first_branch_has_all_rows_and_another_some_is_refused():
    """Regression: StableHLO gave them the type of the first, and so all rows."""
    with sessions.control_flow(1), pytest.raises(PlanError, match="all rows in the first"):
        exported(lambda x, n: tf.cond(n > 1, lambda: x, lambda: masked(x)))


def test_a_program_whose_first_branch_counts_rows():
    with sessions.control_flow(1):
        assert exported(lambda x, n: tf.cond(n > 1, lambda: masked(x), lambda: x)).computations
