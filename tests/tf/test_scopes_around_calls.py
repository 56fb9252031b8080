"""`keep_dtype_scope` and to_float hold for what is called in them, whatever it is called by and whatever runs it."""

import concurrent.futures
import contextlib
import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.options.ops.scopes import keep_dtype_scope, to_float

LOST = np.float32(1 + 2.0**-12)  # float16 rounds it to 1
X = np.full([2, 2], LOST, np.float32)
IS_1 = tf.__version__.startswith("1.")
ONES = np.float32([[1, 0], [0, 1]])


def product(x):
    return tf.matmul(x, tf.constant(ONES))


def traced(x):
    return tf.function(product, autograph=False)(x)


def nested(x):
    inner = tf.function(product, autograph=False)
    return tf.function(lambda y: tf.nn.relu(inner(y)), autograph=False)(x)


def concrete(x):
    return tf.function(product, autograph=False).get_concrete_function(tf.TensorSpec([2, 2]))(x)


def defun(body):
    from tensorflow.python.framework import function  # noqa: TID251

    return function.Defun(tf.float32)(body)


def defined(x):
    return defun(product)(x)


def branched(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: product(x), lambda: x)


def looped(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, product(y)), [0, x])[1]


def looped_branches(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, branched(y)), [0, x])[1]


CALLS = {"function": traced, "nested": nested, "concrete function": concrete, "Defun": defined, "cond": branched,
         "while": looped, "while of cond": looped_branches}  # fmt: skip
SCOPES = {"none": None, "keep": keep_dtype_scope, "float32": lambda: to_float("float32")}


def graph_of(call, scope):
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2], "x")
        low = tf.matmul(x, tf.constant(ONES), name="low")  # lowered in any case
        if SCOPES[scope] is None:
            y = CALLS[call](x)
        else:
            with SCOPES[scope]():
                y = CALLS[call](x)
        tf.identity(y, "y")
        tf.identity(low, "z")
    return graph


def check(values, scope):
    """The product in the scope keeps what float16 loses, those outside lose it."""
    y, z = values
    np.testing.assert_array_equal(z, np.ones([2, 2]))
    np.testing.assert_array_equal(y, np.ones([2, 2]) if scope == "none" else X)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("call", CALLS)
def test_in_a_session(patched, call, scope):
    config = sessions.config(precision_mode="allow_mix_precision")
    with tf.Session(graph=graph_of(call, scope), config=config) as session:
        check(session.run(["y:0", "z:0"], {"x:0": X}), scope)


def test_two_sessions_whose_graphs_differ_in_a_scope_only(patched):
    config = sessions.config(precision_mode="allow_mix_precision")
    opened = {scope: tf.Session(graph=graph_of("function", scope), config=config) for scope in SCOPES}
    for scope, session in opened.items():
        with session:
            check(session.make_callable(["y:0", "z:0"], ["x:0"])(X), scope)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    "way", ["after another session", "in another thread", "on a server", "on a server of that mode"]
)
def test_wherever_the_graph_is_rewritten(patched, way, scope):
    config = sessions.config(precision_mode="allow_mix_precision")
    target = ""
    if "server" in way:
        target = tf.train.Server.create_local_server(config=config if "mode" in way else None).target
    with tf.Session(target, graph=graph_of("Defun", scope), config=config) as session:
        session.run("z:0", {"x:0": X})  # a callable without feeds reaches the graph when it is called
        with session.graph.as_default():
            fed = tf.placeholder_with_default(tf.constant(X), [2, 2])
            with SCOPES[scope]() if SCOPES[scope] else contextlib.nullcontext():
                y = CALLS["Defun"](fed)
            run = session.make_callable([y, tf.matmul(fed, tf.constant(ONES))])
        if "session" in way:
            with tf.Session(graph=graph_of("Defun", "none"), config=config) as other:
                other.run("y:0", {"x:0": X})
        if "thread" in way:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                check(pool.submit(run).result(), scope)
        else:
            check(run(), scope)


def test_a_graph_is_rewritten_once_on_a_server_with_other_options(patched):
    mixed = sessions.config(precision_mode="allow_mix_precision")
    plain = sessions.config(use_off_line=False)
    for asked, server, expected in ((plain, mixed, X), (mixed, plain, np.ones([2, 2]))):
        target = tf.train.Server.create_local_server(config=server).target
        with tf.Session(target, graph=graph_of("Defun", "none"), config=asked) as session:
            np.testing.assert_array_equal(session.run("z:0", {"x:0": X}), expected)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("call", CALLS)
def test_by_rewrite(call, scope):
    graph_def = graph_of(call, scope).as_graph_def()
    rewritten, _ = npu_shim.rewrite(graph_def, ["y", "z"], ["x"], precision_mode="allow_mix_precision")
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(rewritten, name="")
        with tf.Session(graph=graph) as session:
            check(session.run(["y:0", "z:0"], {"x:0": X}), scope)


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("call", CALLS)
def test_in_a_compiled_step(call, scope):
    step = npu_shim.compile_step(graph_of(call, scope), ["y:0", "z:0"], ["x"], precision_mode="allow_mix_precision")
    check(step({"x:0": X}), scope)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("call", ["function", "cond", "while"])
def test_gradients_of_what_is_called(patched, call, gradients):
    """The gradient of x @ ones is as many float32 products where the scope asks for it, and low otherwise."""
    config = sessions.config(precision_mode="allow_mix_precision")
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2], "x")
        with keep_dtype_scope(gradients=gradients):
            y = CALLS[call](x)
        tf.identity(tf.gradients(y, [x], [x])[0], "dx")
    with tf.Session(graph=graph, config=config) as session:
        value = session.run("dx:0", {"x:0": X})
    np.testing.assert_array_equal(value, X if gradients else np.ones([2, 2]))


def twins(call, is_first):
    """A graph that computes one thing in a scope and outside of it; `is_first` is what is in the scope."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2], "x")
        shared = tf.function(product, autograph=False)
        build = shared if call == "one function" else CALLS[call]
        z = None if is_first else build(x)
        with keep_dtype_scope():
            y = build(x)
        tf.identity(build(x) if z is None else z, "z")
        tf.identity(y, "y")
    return graph


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("call", ["one function", *CALLS])
def test_the_same_in_a_scope_and_outside(patched, call, is_first):
    """Regression: TensorFlow computed both at once, in the dtype of the first."""
    config = sessions.config(precision_mode="allow_mix_precision")
    with tf.Session(graph=twins(call, is_first), config=config) as session:
        check(session.run(["y:0", "z:0"], {"x:0": X}), "keep")


@pytest.mark.parametrize("call", ["one function", *CALLS])
def test_the_same_in_a_scope_and_outside_by_rewrite(call):
    graph_def = twins(call, False).as_graph_def()
    rewritten, _ = npu_shim.rewrite(graph_def, ["y", "z"], ["x"], precision_mode="allow_mix_precision")
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(rewritten, name="")
        with tf.Session(graph=graph) as session:
            check(session.run(["y:0", "z:0"], {"x:0": X}), "keep")


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
@pytest.mark.parametrize("call", ["one function", *CALLS])
def test_the_same_in_a_scope_and_outside_in_a_compiled_step(call):
    step = npu_shim.compile_step(twins(call, False), ["y:0", "z:0"], ["x"], precision_mode="allow_mix_precision")
    check(step({"x:0": X}), "keep")


def test_a_call_that_is_built_after_its_session(patched, caplog):
    """TensorFlow may merge it with an equal one, so a line says what to do."""
    with tf.Graph().as_default(), tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
        x = tf.placeholder(tf.float32, [2, 2])
        with keep_dtype_scope():
            y = traced(x)
        session.run(y, {x: X})
    assert "PartitionedCall' is in a keep_dtype_scope" in caplog.text
    assert "make the session after its graph" in caplog.text


def test_sessions_without_such_calls_merge_equal_nodes(patched):
    for scope in ("none", "keep"):
        with tf.Session(graph=graph_of("function", scope), config=sessions.config()) as session:
            options = session._config.graph_options.rewrite_options
            merging = options.arithmetic_optimization if IS_1 else options.common_subgraph_elimination
            assert (merging == options.OFF) == (scope == "keep")


def test_a_scope_inside_a_function_wins_over_one_around_its_call():
    def body(x):
        with to_float("float16"):
            return tf.matmul(x, x)

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        with to_float("float32"):
            y = tf.function(lambda x: body(x) + product(x), autograph=False)(x)
        tf.identity(y, "y")
    _, plan = npu_shim.rewrite(graph.as_graph_def(), ["y"], ["x"], precision_mode="allow_mix_precision")
    dtypes = sorted((d.op, d.becomes) for d in plan.decisions() if d.op == "MatMul")
    assert dtypes == [("MatMul", 1), ("MatMul", 19)]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("outer", "call"),
    [("function", call) for call in CALLS if call != "concrete function"]
    + [("Defun", call) for call in ("function", "nested", "Defun")],  # it has control flow of version 1
)
def test_a_scope_around_a_call_inside_a_function(patched, call, outer, scope):
    def body(x):
        with SCOPES[scope]() if SCOPES[scope] else contextlib.nullcontext():
            return tf.reshape(CALLS[call](x), [2, 2])

    function = defun(body) if outer == "Defun" else tf.function(body, autograph=False)
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2], "x")
        low = tf.matmul(x, tf.constant(ONES))
        y = function(x)
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        check(session.run([y, low], {x: X}), scope)


@pytest.mark.parametrize("kept", [False, True])
def test_the_gradient_of_a_defun_is_kept_where_it_is_made_in_a_scope(patched, kept):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        y = defined(x)
        with keep_dtype_scope() if kept else contextlib.nullcontext():
            dx = tf.gradients(y, [x], [x])[0]
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        np.testing.assert_array_equal(session.run(dx, {x: X}), X if kept else np.ones([2, 2]))


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("call", ["product", "function"])
@pytest.mark.parametrize("place", ["inside", "outside", "no function"])
def test_gradients_of_a_scope_inside_a_function(patched, place, call, gradients):
    """They are kept where the scope asks for it, whether they are made in the function or of its call.

    The run has no forward product, which nothing needs.
    """

    def body(x):
        with keep_dtype_scope(gradients=gradients):
            y = product(x) if call == "product" else traced(x)
        return tf.gradients(y, [x], [x])[0] if place == "inside" else y

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        y = body(x) if place == "no function" else tf.function(body, autograph=False)(x)
        dx = y if place == "inside" else tf.gradients(y, [x], [x])[0]
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        np.testing.assert_array_equal(session.run(dx, {x: X}), X if gradients else np.ones([2, 2]))


@pytest.mark.parametrize("call", CALLS)
def test_customize_dtypes_names_a_node_in_a_function_as_the_plan_shows_it(patched, call, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    graph = graph_of(call, "none")
    _, plan = npu_shim.rewrite(graph.as_graph_def(), ["y", "z"], ["x"], precision_mode="allow_mix_precision")
    names = {d.node for d in plan.decisions() if "MatMul" in d.op} - {"low"}
    path = tmp_path / "dtypes.txt"
    path.write_text("".join("%s::InputDtype:float32,float32,OutputDtype:float32\n" % name for name in names))
    config = sessions.config(precision_mode="allow_mix_precision", customize_dtypes=str(path))
    with tf.Session(graph=graph, config=config) as session:
        session.run("z:0", {"x:0": X})  # which needs no function
        check(session.run(["y:0", "z:0"], {"x:0": X}), "keep")
    assert names
    assert "no node" not in caplog.text
