"""Gradients of version 2 conditionals in compiled steps: the values that their branches hand over."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_2", "patched")]
STEPS, SIZE = 4, 4
KEPT = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}
MIXED = {"precision_mode": "allow_mix_precision"}


def conditional(p, x, w, v):
    return tf.cond(p, lambda: tf.nn.relu(tf.matmul(x, w)) * tf.sigmoid(x), lambda: tf.tanh(x * v))


def nested(p, x, w, v):
    """One place of the outer conditional is a bool in one branch and a matrix in the other."""
    inner = lambda: tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.exp(x @ w) * x, lambda: tf.sigmoid(x @ v))  # noqa: E731
    return tf.cond(p, inner, lambda: tf.tanh(x * v[0]))


def chosen(p, x, w, v):
    ways = [lambda: tf.sigmoid(x @ w), lambda: tf.reduce_mean(x @ v, 1, keepdims=True) * tf.exp(x), lambda: x * w * v]
    return tf.switch_case(tf.cast(p, tf.int32) + tf.cast(x[0, 0] > 0.0, tf.int32), ways)


def looped(p, x, w, v):
    """The gradient of the loop keeps what each iteration's conditional hands over in a list."""
    body = lambda i, y: (i + 1, tf.cond(p, lambda: tf.tanh(y @ w), lambda: tf.sigmoid(y @ v) * y))  # noqa: E731
    return tf.while_loop(lambda i, y: i < 3, body, (0, x), maximum_iterations=3)[1]


def called(p, x, w, v):
    @tf.function(autograph=False)
    def layer(y):
        return tf.cond(p, lambda: tf.sigmoid(y @ w), lambda: tf.tanh(y * v))

    return layer(layer(x))


def twice(p, x, w, v):
    """The gradient of a gradient: both keep values of the same conditional."""
    y = tf.cond(p, lambda: tf.tanh(tf.matmul(x, w)) * x, lambda: tf.sigmoid(x * v[0]))
    return y + tf.gradients(tf.reduce_sum(y), x)[0]


def built(form, rows=SIZE):
    """A graph that trains two variables with a form of conditional."""
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [rows, SIZE], "x"), tf.placeholder(tf.bool, [], "p")
        make = lambda name, start: tf.get_variable(  # noqa: E731
            name, [SIZE, SIZE], initializer=tf.constant_initializer(start), use_resource=True
        )
        y = form(p, x, make("w", 0.5), make("v", 0.25))
        loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
        tf.train.GradientDescentOptimizer(0.5).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


def batches():
    draw = np.random.RandomState(1)
    return [{"x:0": draw.randn(SIZE, SIZE).astype(np.float32), "p:0": np.array(k % 2 == 0)} for k in range(STEPS)]


def in_session(graph, **more):
    with tf.Session(graph=graph, config=sessions.config(**more)) as session:
        session.run("init")
        losses = [session.run(["loss:0", "train"], batch)[0] for batch in batches()]
        return losses, session.run(["w/Read/ReadVariableOp:0", "v/Read/ReadVariableOp:0"])


AS_KEPT, AS_MIXED = (KEPT, 1e-5, None), (MIXED, 5e-3, SIZE)
FORMS = [*((form, *AS_KEPT) for form in (conditional, nested, chosen, looped, called, twice)),
         (nested, *AS_MIXED), (looped, *AS_MIXED)]  # fmt: skip


@pytest.mark.parametrize(("form", "options", "tolerance", "rows"), FORMS)
def test_a_compiled_step_trains_as_the_session_does(form, options, tolerance, rows):
    graph = built(form, rows)
    losses, (w, v) = in_session(graph, precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")
    step = npu_shim.compile_step(graph, ["loss:0", "train"], ["x", "p"], initializer="init", **options)
    np.testing.assert_allclose([step(batch)[0] for batch in batches()], losses, tolerance)
    state = step.state()
    np.testing.assert_allclose(state["w"], w, 10 * tolerance, tolerance)
    np.testing.assert_allclose(state["v"], v, 10 * tolerance, tolerance)


def test_shapes_may_follow_from_the_feeds():
    step = npu_shim.compile_step(built(nested, None), ["loss:0", "train"], ["x", "p"], initializer="init", **KEPT)
    for rows in (2, 3):
        assert np.isfinite(step({"x:0": np.ones((rows, SIZE), np.float32), "p:0": np.array(True)})[0])


def test_a_conditional_hands_over_rows_that_data_count():
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [SIZE, SIZE], "x"), tf.placeholder(tf.bool, [], "p")
        w = tf.get_variable("w", [SIZE, SIZE], use_resource=True)
        rows = lambda: tf.reduce_sum(tf.sigmoid(tf.boolean_mask(x @ w, x[:, 0] > 0.0)))  # noqa: E731
        loss = tf.cond(p, rows, lambda: tf.reduce_sum(w))
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        tf.global_variables_initializer()
    assert_as_in_a_session(graph, [loss, train], batches(), "init", 1e-4, 1e-5)


@pytest.mark.parametrize("form", [nested, pytest.param(looped, marks=pytest.mark.nightly)])
def test_the_engine_takes_such_steps(form):
    graph = built(form)
    own = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}
    losses, weights = in_session(graph, **own)
    with tf.Session(graph=graph, config=sessions.config(npu_shim_engine="pjrt", **own)) as session:
        session.run("init")
        np.testing.assert_allclose([session.run(["loss:0", "train"], batch)[0] for batch in batches()], losses, 1e-5)
        for name, value in zip("wv", weights):
            np.testing.assert_allclose(session.run(name + "/Read/ReadVariableOp:0"), value, 1e-4, 1e-5)
        (known,) = (run for run in session._npu_shim_engine.known.values() if run.programs)
        assert len(known.step.parts) == 1


def test_beside_a_loop_of_version_1():  # KeyError: the back edge of the loop has no inferred tensor
    with sessions.control_flow(1), tf.Graph().as_default():
        w, n = tf.get_variable("w", initializer=2.0, use_resource=True), tf.placeholder(tf.int32, [], "n")
        y = tf.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, y * w), (0, 1.0), maximum_iterations=3)[1]
        loss = tf.switch_case(n, [lambda: y * w, lambda: y * y]) + y
        fetches, init = [loss, *tf.gradients(loss, [w])], tf.global_variables_initializer()
        step = npu_shim.compile_step(tf.get_default_graph(), fetches, ["n:0"], initializer=init)
        with tf.Session() as session:
            session.run(init)
            for number in (0, 1):
                np.testing.assert_array_equal(step({"n:0": number}), session.run(fetches, {n: number}))
