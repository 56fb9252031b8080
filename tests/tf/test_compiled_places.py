"""Compiled steps that take a place or a size from a variable, beside a session."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]


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


def fetched(take, write, reads_after, x, p, use_resource=True):
    """What is taken at a variable's place, before or after it is written, and the variable."""
    v = tf.get_variable("v", initializer=tf.constant(1), use_resource=use_resource)
    if reads_after:
        with tf.control_dependencies([write(v, p)]):
            return [take(v.read_value() + 0, x), v.read_value() + 0]
    taken = take(v.read_value(), x)
    with tf.control_dependencies([taken]):
        written = write(v, p)
    with tf.control_dependencies([written]):
        return [taken, v.read_value() + 0]


def batches(x, p):
    numbers = np.random.RandomState(3)
    return [{x: numbers.randint(-9, 9, (4, 4)).astype("f"), p: bool(k % 2)} for k in range(4)]


WRITES = [in_a_branch, in_a_loop, at_once]


@pytest.mark.parametrize("take", [row, slice_of, row_in_a_branch, row_in_a_loop, row_of_a_row])
def test_places_are_the_variables_own(take):
    """Regression: behind a branch or loop that wrote it, a variable had the value from before the step."""
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [], "p")
        fetches = []
        for number, (write, after) in enumerate([(w, after) for w in WRITES for after in (False, True)]):
            with tf.variable_scope("at%d" % number):
                fetches += fetched(take, write, after, x, p)
        if take in (row, row_in_a_branch):
            with tf.variable_scope("reference"):
                fetches += fetched(take, in_a_branch, True, x, p, False)
        init = tf.global_variables_initializer()
    assert_as_in_a_session(graph, fetches, batches(x, p), init, rtol=0, atol=0)


@pytest.mark.parametrize("take", [lambda v, x: tf.fill([v % 4 + 1], x[0, 0]), lambda v, x: tf.reduce_sum(x, v % 2)])
def test_a_size_that_a_variable_says_is_refused(take):
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [], "p")
        fetches = fetched(take, at_once, False, x, p)
        init = tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, fetches, [x, p], initializer=init)
    with pytest.raises(
        npu_shim.PlanError, match=r"node '(Fill|Sum)\w*' \(\w+\): .* known when the step is traced; run"
    ):
        step(batches(x, p)[0])
    assert step.state()["v"] == 1


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
