"""Compiled steps that take a place or a size from a variable, which XLA would make a constant of the program."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla.passes.shapes import compile_time

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
STEPS = 4


def changed(v):
    return tf.group(tf.assign(v, (v * 3 + 1) % 7))


def in_a_branch(v, p):
    return tf.cond(p, lambda: changed(v), lambda: tf.group(tf.assign(v, (v * 5 + 2) % 7)))


def in_a_loop(v, p):
    def body(i):
        with tf.control_dependencies([changed(v)]):
            return i + 1

    return tf.group(tf.while_loop(lambda i: i < 2, body, [0]))


def at_once(v, p):
    return changed(v)


def row(v, x):
    return x[v % 4]


def slice_of(v, x):
    return tf.slice(x, [v % 4, 0], [1, 4])


def row_in_a_branch(v, x):
    return tf.cond(x[0, 0] > 0.0, lambda: x[v % 4], lambda: x[(v + 1) % 4] * 2.0)


def row_in_a_loop(v, x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, b: (i + 1, b + x[(v + i) % 4]), (0, x[0]))[1]


def row_of_a_row(v, x):
    with tf.control_dependencies(None):
        places = tf.get_variable("places", initializer=tf.constant([3, 1, 0, 2]), use_resource=True)
    chosen = tf.gather(places, v % 4)
    with tf.control_dependencies([chosen]):
        shifted = tf.cond(x[0, 0] > 0.0, lambda: tf.group(tf.assign(places, (places + 1) % 4)), tf.no_op)
    with tf.control_dependencies([shifted]):
        return x[chosen] + tf.cast(places.read_value(), tf.float32)


def size(v, x):
    return tf.reduce_sum(tf.fill([v % 4 + 1], x[0, 0]))


def axis(v, x):
    return tf.reduce_sum(x, v % 2)


def compiled_and_not(take, write, use_resource, reads_after, **more):
    """(What compile_step gives in some steps, what a session gives)."""
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [], "p")
        v = tf.get_variable("v", initializer=tf.constant(1), use_resource=use_resource)
        fetches = [tf.reduce_sum(x) + tf.cast(p, tf.float32)]
        if reads_after:
            with tf.control_dependencies([write(v, p)]):
                fetches += [take(v.read_value() + 0, x), v.read_value() + 0]
        else:
            fetches += [take(v.read_value(), x)]
            with tf.control_dependencies([fetches[-1]]):
                written = write(v, p)
            with tf.control_dependencies([written]):
                fetches += [v.read_value() + 0]
        init = tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, fetches, [x, p], initializer=init, **more)
    numbers = np.random.RandomState(3)
    batches = [{"x:0": numbers.randint(-9, 9, (4, 4)).astype("f"), "p:0": bool(k % 2)} for k in range(STEPS)]
    with tf.Session(graph=graph) as session:
        session.run(init)
        expected = [[np.array(value) for value in session.run(fetches, batch)] for batch in batches]
    return [step(batch) for batch in batches], expected


def assert_alike(actual, expected):
    for number, (one, other) in enumerate(zip(actual, expected)):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b, "step %d" % number)


@pytest.mark.parametrize("reads_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", [in_a_branch, in_a_loop, at_once])
@pytest.mark.parametrize("take", [row, slice_of, row_in_a_branch, row_in_a_loop, row_of_a_row])
def test_places_are_the_variables_own(take, write, reads_after):
    """Regression: behind a branch or loop that wrote it, a variable had the value from before the step."""
    assert_alike(*compiled_and_not(take, write, True, reads_after))


@pytest.mark.parametrize("take", [row, row_in_a_branch])
def test_places_of_reference_variables(take):
    assert_alike(*compiled_and_not(take, in_a_branch, False, True))


@pytest.mark.parametrize("take", [size, axis])
@pytest.mark.parametrize("write", [in_a_branch, in_a_loop])
def test_sizes_of_what_a_branch_writes_are_refused(take, write):
    """Regression: they were of the value from before the step."""
    with pytest.raises(PlanError, match="XLA must know its sizes and axes"):
        compiled_and_not(take, write, True, True)


@pytest.mark.parametrize("take", [size, axis])
def test_sizes_of_what_is_written_at_once_are_compiled_again_and_said(take, caplog):
    caplog.set_level(logging.WARNING, "npu_shim")
    assert_alike(*compiled_and_not(take, at_once, True, False))
    told = [record.getMessage() for record in caplog.records if "again for every new value" in record.getMessage()]
    assert len(told) == 1
    assert "variable 'v'" in told[0]


def test_what_is_not_written_may_be_a_size(caplog):
    caplog.set_level(logging.WARNING, "npu_shim")
    assert_alike(*compiled_and_not(size, lambda v, p: tf.group(tf.identity(v)), True, False))
    assert not [record for record in caplog.records if "again for every new value" in record.getMessage()]


def test_results_of_open_shape_in_several_iterations():
    """Regression: several iterations of what has a result of open shape ended in an error of TensorFlow's."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        v = tf.get_variable("v", initializer=tf.constant(0.0), use_resource=True)
        total = tf.assign_add(v, tf.reduce_sum(x))
        positive = tf.where(x > 0.0)
        init = tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, [positive, total], [x], initializer=init, iterations_per_loop=2)
    places, value = step({x: [[1.0, -1.0, 2.0, 0.0], [0.0, 3.0, -1.0, 0.0]]})
    assert places.tolist() == [[1]]
    assert value == 4.0


def test_a_size_is_asked_of_the_value_that_a_loop_gives_and_of_no_other():
    """What stood beside it in the loop, such as weights, was said to be compiled again for every new value."""
    with sessions.control_flow(2), tf.Graph().as_default() as graph:
        count, rows = tf.placeholder(tf.int32, [], "count"), tf.placeholder(tf.float32, [4], "rows")
        last, _ = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (count, rows))
        tf.fill([last], 1.0)
    given = graph.as_graph_def()
    asked = compile_time.asked(given.node, {function.signature.name: function for function in given.library.function})
    assert "count" in asked
    assert "rows" not in asked
