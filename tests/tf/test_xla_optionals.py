"""Gradients of version 2 conditionals in compiled steps: the values that their branches hand over."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from passes_as_text import after, stays

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.xla.passes.shapes.optionals import OPS, lower

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_2", "patched"),
]
STEPS, SIZE = 4, 4
KEEPING = """\
x:Placeholder{dtype=float32, shape=<2,3>}
p:Placeholder{dtype=bool, shape=<>}
c:If{Tcond=bool, Tin=[float32], Tout=[float32, variant], else_branch=@g, output_shapes=[<>], then_branch=@f}(p, x)
d:If{Tcond=bool, Tin=[variant], Tout=[float32], else_branch=@g_grad, then_branch=@f_grad}(p, c:1)
function f(x: float32) -> (y: float32, kept: variant)
  e:Exp{T=float32}(x)
  o:OptionalFromValue{Toutput_types=[float32]}(e)
  return y=e, kept=o
end
function g(x: float32) -> (y: float32, kept: variant)
  o:OptionalNone(^x)
  return y=x, kept=o
end
function f_grad(kept: variant) -> (y: float32)
  v:OptionalGetValue{output_shapes=[<*>], output_types=[float32]}(kept)
  return y=v
end
function g_grad(kept: variant) -> (y: float32)
  z:Const{dtype=float32, value=float32<2,3>(0, 0, 0, 0, 0, 0)}
  return y=z
end
"""
LOWERED = """\
x:Placeholder{dtype=float32, shape=<2,3>}
p:Placeholder{dtype=bool, shape=<>}
c:If{Tcond=bool, Tin=[float32], Tout=[float32, float32], else_branch=@g, then_branch=@f}(p, x)
d:If{Tcond=bool, Tin=[float32], Tout=[float32], else_branch=@g_grad, then_branch=@f_grad}(p, c:1)
function f(x: float32) -> (y: float32, kept: float32)
  e:Exp{T=float32}(x)
  o:Identity{T=float32}(e)
  return y=e, kept=o
end
function g(x: float32) -> (y: float32, kept: float32)
  o/npu_shim_dims:Const{dtype=int32, value=int32<2>(2, 3)}
  o/npu_shim_zero:Const{dtype=float32, value=float32<>(0)}
  o:Fill{T=float32, index_type=int32}(o/npu_shim_dims, o/npu_shim_zero, ^x)
  return y=x, kept=o
end
function f_grad(kept: float32) -> (y: float32)
  v:Identity{T=float32}(kept)
  return y=v
end
function g_grad(kept: float32) -> (y: float32)
  z:Const{dtype=float32, value=float32<2,3>(0, 0, 0, 0, 0, 0)}
  return y=z
end
"""
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


@pytest.mark.parametrize("form", [conditional, nested, chosen, looped, called, twice])
@pytest.mark.parametrize(
    ("options", "tolerance", "rows"), [(KEPT, 1e-5, None), (MIXED, 5e-3, SIZE)], ids=["kept", "mixed"]
)
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


def test_what_a_conditional_hands_over_in_a_size_that_data_decide_is_refused_by_name():
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [SIZE, SIZE], "x"), tf.placeholder(tf.bool, [], "p")
        w = tf.get_variable("w", [SIZE, SIZE], use_resource=True)
        rows = lambda: tf.reduce_sum(tf.sigmoid(tf.boolean_mask(x @ w, x[:, 0] > 0.0)))  # noqa: E731
        loss = tf.cond(p, rows, lambda: tf.reduce_sum(w))
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, [train], ["x", "p"], initializer="init", **KEPT)
    with pytest.raises(PlanError, match=r"node 'OptionalFromValue\w*' of function .* shape \(.*XLA must know both"):
        step({"x:0": np.ones((SIZE, SIZE), np.float32), "p:0": np.array(True)})


def test_signatures_and_calls_take_the_dtypes_of_the_values():
    assert after("optionals-to-values", KEEPING) == LOWERED
    stays("optionals-to-values", LOWERED)


def test_a_place_that_branches_share_holds_bytes():
    puts_a_bool = "b:IsNan{T=float32}(x); o:OptionalFromValue{Toutput_types=[bool]}(b)"
    text = after("optionals-to-values", KEEPING.replace("o:OptionalNone(^x)", puts_a_bool))
    assert "function f(x: float32) -> (y: float32, kept: uint8)" in text
    assert "v/npu_shim_shape:Const{dtype=int32, value=int32<3>(2, 3, 4)}" in text  # of f, which is the gradient's too
    assert "o/npu_shim_rest:Const{dtype=int32, value=int32<1,2>(0, 18)}" in text
    assert "c:If{Tcond=bool, Tin=[float32], Tout=[float32, uint8], else_branch=@g, then_branch=@f}(p, x)" in text


@pytest.mark.parametrize(
    ("old", "new", "node", "reason"),
    [
        ("o:OptionalNone(^x)", "o:OptionalNone; h:OptionalHasValue(o)", "'o' of function 'g'", "OptionalHasValue"),
        ("o:OptionalFromValue{Toutput_types=[float32]}(e)", "o:OptionalNone", "'v' of function 'f_grad'", "0 values"),
        ("shape=<2,3>", "shape=<?,3>", "'o' of function 'f'", "a float32 of shape"),
    ],
)
def test_what_is_not_known_is_refused_by_name(old, new, node, reason):
    assert old in KEEPING
    with pytest.raises(PlanError, match=r"node %s: a value that .*%s" % (node, reason)):
        after("optionals-to-values", KEEPING.replace(old, new))


def test_no_optional_is_left():
    module = graphdef.read(built(looped).as_graph_def())
    assert not OPS.isdisjoint(module.ops())
    lower(module)
    assert OPS.isdisjoint(module.ops())
    with tf.Graph().as_default():
        tf.import_graph_def(graphdef.write(module))


@pytest.mark.skipif(not os.environ.get("NPU_SHIM_JAX"), reason="no interpreter with JAX: NPU_SHIM_JAX names none")
@pytest.mark.parametrize("form", [nested, looped])
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
