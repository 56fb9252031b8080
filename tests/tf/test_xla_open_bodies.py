"""Compiled steps with tensors whose number of rows is data inside of functions, branches and loops of version 2."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.export.step import hlo_module
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
        found = WAYS[way](f, w * x * 2, n)
        loss = tf.reduce_sum(found if train else w)
        fetches = [found, tf.train.GradientDescentOptimizer(0.1).minimize(loss), w.read_value()]
        return graph, fetches, [x, n], tf.global_variables_initializer()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", UNSOUND)
def test_what_xla_computes_wrongly_is_refused(name, way):
    f, op = UNSOUND[name]
    graph, fetches, feeds, init = step_of(f, way)
    with pytest.raises(PlanError, match=r"\(%s\) takes a (number of rows|size)" % op):
        npu_shim.compile_step(graph, fetches, feeds, initializer=init)({"x:0": X, "n:0": 1})


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
