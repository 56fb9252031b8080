"""Compiled steps with gradients of version 2 loops over lists: how long the lists are is known."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.xla.passes.shapes import list_sizes

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),  # recurrent cells of TensorFlow 1
]
TIME, ROWS, WIDTH = 3, 2, 4


def cell(kind, x, lengths=None):
    outputs, state = tf.nn.dynamic_rnn(kind(WIDTH), x, lengths, dtype=tf.float32, time_major=True)
    return tf.reduce_sum(outputs * outputs) + tf.add_n([tf.reduce_sum(part) for part in tf.nest.flatten(state)])


def unstacked(x, w):
    rows = tf.TensorArray(tf.float32, TIME).unstack(x)
    body = lambda i, a: (i + 1, tf.tanh(a + tf.matmul(rows.read(i), w)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < TIME, body, (0, tf.zeros([ROWS, WIDTH])), maximum_iterations=TIME)[1]


def of_two_lengths(x, w):
    """Two lists in one loop, of lengths that differ, one of them of scalars."""
    rows, weights = tf.TensorArray(tf.float32, TIME).unstack(x), tf.TensorArray(tf.float32, 5).unstack(tf.range(5.0))
    weights = weights.write(0, w[0, 0])
    body = lambda i, a: (i + 1, a * weights.read(i) + tf.matmul(rows.read(i), w))  # noqa: E731
    return tf.while_loop(lambda i, _: i < TIME, body, (0, tf.ones([ROWS, WIDTH])), maximum_iterations=TIME)[1]


def ended(ends):
    """A loop without maximum_iterations."""
    return lambda x, w: tf.while_loop(ends(x), lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w))), (0, x[0]))[1]


def of_its_gradient(x, w):
    rows = ended(lambda _: lambda i, _: i < 3)(x, tf.identity(w))
    return tf.gradients(tf.reduce_sum(rows * rows), w)[0]


LOOPS = {
    "of its gradient": of_its_gradient,
    "ended at once": ended(lambda x: lambda i, _: i < 0),
    "ended by a constant": ended(lambda x: lambda i, _: i < 3),
    "ended by a shape": ended(lambda x: lambda i, _: i < tf.shape(x)[0]),
    "ended by a shape from outside": ended(lambda x: (lambda n: lambda i, _: i <= n)(tf.shape(x)[-1])),
    "ended by the lesser": ended(lambda x: lambda i, _: i < tf.minimum(4, tf.cast(x[0, 0, 0] * 5, tf.int32))),
    "ended by data or a constant": ended(lambda _: lambda i, a: tf.logical_and(a[0, 0] < 9.0, tf.greater(5, i))),
    "map_fn": lambda x, w: tf.map_fn(lambda row: tf.matmul(row, w) + 1.0, x),
    "map_fn in map_fn": lambda x, w: tf.map_fn(lambda row: tf.map_fn(lambda v: tf.tanh(v * w[0]), row), x),
    "map_fn of pairs": lambda x, w: tf.map_fn(lambda pair: pair[0] * pair[1], (x, x * w[1]), dtype=tf.float32),
    "scan": lambda x, w: tf.scan(lambda a, row: tf.tanh(tf.matmul(a, w)) + row, x),
    "scan, reversed": lambda x, w: tf.scan(lambda a, row: tf.tanh(tf.matmul(a, w)) + row, x, reverse=True),
    "foldl": lambda x, w: tf.foldl(lambda a, row: tf.matmul(a, w) + row, x),
    "unstacked": unstacked,
    "of two lengths": of_two_lengths,
    "in a function": lambda x, w: tf.function(lambda x, w: tf.map_fn(lambda row: tf.matmul(row, w), x))(x, w),
    "recurrent": lambda x, w: cell(tf.nn.rnn_cell.BasicRNNCell, x * w[0]),
    "LSTM": lambda x, w: cell(tf.nn.rnn_cell.LSTMCell, x * w[0]),
    "GRU, lengths": lambda x, w: cell(tf.nn.rnn_cell.GRUCell, x * w[0], tf.constant([1, 3])),
}


def built(loop):
    """A step that trains w and what the loop makes, of version 2; fetches "loss" and "train"."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        tf.set_random_seed(3)
        x = tf.placeholder(tf.float32, [TIME, ROWS, WIDTH], "x")
        w = tf.get_variable("w", initializer=np.linspace(-0.5, 0.7, 16).reshape(4, 4).astype("f"), use_resource=True)
        loss = tf.reduce_sum(tf.square(loop(x, w)), name="loss")
        tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


def fed(number):
    return {"x:0": np.random.RandomState(number).uniform(-1, 1, [TIME, ROWS, WIDTH]).astype("f")}


@pytest.mark.parametrize("name", LOOPS)
def test_it_trains_as_in_a_session(name):
    graph = built(LOOPS[name])
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, ["loss:0", "train"], ["x"])
        for number in range(3):
            expected = session.run(["loss:0", "train"], fed(number))[0]
            np.testing.assert_allclose(step(fed(number))[0], expected, rtol=1e-5)
        values = {variable.op.name: session.run(variable) for variable in graph.get_collection("variables")}
    for variable, value in step.state().items():
        np.testing.assert_allclose(value, values[variable], rtol=1e-5, atol=1e-6, err_msg=variable)


def test_it_trains_in_mixed_precision():
    graph = built(LOOPS["LSTM"])
    losses = []
    for options in ({}, {"precision_mode": "allow_mix_precision"}):
        step = npu_shim.compile_step(graph, ["loss:0", "train"], ["x"], initializer="init", **options)
        losses.append([step(fed(number))[0] for number in range(3)])
    np.testing.assert_allclose(*losses, rtol=2e-2)
    assert losses[0] != losses[1]


def lengths(build):
    """{name of each TensorListLength in the graph or in functions: what takes its place, None where it stays}."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        build()
    module = graphdef.read(graph.as_graph_def())
    list_sizes.fold(module)
    asked = [node for graph in module.graphs() for node in graph if node.op == "TensorListLength"]
    assert asked
    return {not any(node.value.users) for node in asked}


def handles(*sizes):
    given = {"element_shape": np.int32([]), "element_dtype": tf.float32}
    return [tf.raw_ops.TensorListReserve(num_elements=size, **given) for size in sizes]


def length(handle):
    return tf.identity(tf.raw_ops.TensorListLength(input_handle=handle))


def set_item(handle):
    return tf.raw_ops.TensorListSetItem(input_handle=handle, index=0, item=1.0)


def looped(body):
    """The length of a list, asked in each iteration of a loop that begins with one of three."""
    bound = tf.placeholder(tf.int32, [], "bound")
    tf.while_loop(
        lambda i, *_: i < bound, lambda i, n, handle: (i + 1, n + length(handle), body(handle)), (0, 0, handles(3)[0])
    )


P = lambda: tf.placeholder(tf.bool, [])  # noqa: E731


@pytest.mark.parametrize(
    ("build", "is_known"),
    [
        (lambda: length(handles(3)[0]), True),
        (lambda: length(set_item(handles(3)[0])), True),
        (lambda: length(handles(tf.placeholder(tf.int32, []))[0]), False),
        (lambda: length(tf.cond(P(), lambda: handles(3)[0], lambda: set_item(handles(3)[0]))), True),
        (lambda: length(tf.cond(P(), lambda: handles(3)[0], lambda: handles(4)[0])), False),
        (lambda: looped(lambda handle: handle), True),
        (lambda: looped(set_item), True),
        (lambda: looped(lambda _: handles(3)[0]), True),
        (lambda: looped(lambda _: handles(4)[0]), False),
        (lambda: looped(lambda handle: tf.raw_ops.TensorListResize(input_handle=handle, size=3)), False),
        (lambda: looped(lambda handle: tf.cond(P(), lambda: handle, lambda: handles(4)[0])), False),
    ],
)
def test_a_length_is_known_where_nothing_contradicts_it(build, is_known):
    assert lengths(build) == {is_known}


def written_in_a_loop(size, bound=4, index=lambda i: i, start=0, step=1, ends=None, **bounds):
    """A loop that writes a list of `size` rows, which would grow."""

    def build(x):
        rows = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[2])
        body = lambda i, rows: (i + step, rows.write(index(i), x * tf.cast(i, tf.float32)))  # noqa: E731
        return tf.while_loop(ends or (lambda i, _: i < bound), body, (start, rows), **bounds)[1].stack()

    return build


def written(size, *places):
    def build(x):
        rows = tf.TensorArray(tf.float32, size, dynamic_size=True, element_shape=[2])
        for place in places:
            rows = rows.write(place, x * (place + 1.0))
        return rows.stack()

    return build


FIXED = {
    "at known places": written(3, 0, 2, 1),
    "in a loop": written_in_a_loop(4),
    "in a longer one": written_in_a_loop(6),
    "up to and with": written_in_a_loop(4, ends=lambda i, _: i <= 3),
    "the other way round": written_in_a_loop(4, ends=lambda i, _: tf.greater(4, i)),
    "from 1 by 2": written_in_a_loop(6, 7, start=1, step=2),
    "by the number of iterations": written_in_a_loop(3, ends=lambda i, _: i * i < 50, maximum_iterations=3),
    "both": written_in_a_loop(3, ends=lambda i, _: tf.logical_and(i < 9, i < 3)),
}
GROWING = {
    "at a known place": written(2, 0, 3),
    "in a loop": written_in_a_loop(3),
    "by one": written_in_a_loop(3, ends=lambda i, _: i <= 3),
    "from 1 by 2": written_in_a_loop(5, 7, start=1, step=2),
    "at a computed place": written_in_a_loop(4, index=lambda i: i * 2),
    "as often as the data say": written_in_a_loop(4, ends=lambda i, rows: tf.reduce_sum(rows.read(i)) < 1.0),
    "downwards": written_in_a_loop(2, start=4, step=-1, ends=lambda i, _: i > 0),
    "from nothing": written_in_a_loop(0),
}


def rows_of(build):
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2], "x")
        tf.identity(build(x) + x, "rows")
    return graph, {"x:0": np.float32([1.0, 3.0])}


@pytest.mark.parametrize("name", FIXED)
def test_a_list_that_may_grow_and_does_not_is_a_sessions(name):
    graph, feeds = rows_of(FIXED[name])
    actual = npu_shim.compile_step(graph, "rows:0", ["x"])(feeds)
    with tf.Session(graph=graph) as session:
        np.testing.assert_array_equal(actual, session.run("rows:0", feeds))


@pytest.mark.parametrize("name", GROWING)
def test_a_list_that_grows_is_refused(name):
    """Regression: XLA wrote what came behind the end to the last row, in the engine's sessions too."""
    graph, feeds = rows_of(GROWING[name])
    with pytest.raises(PlanError, match=r"may make its list longer.* give the TensorArray its full size"):
        npu_shim.compile_step(graph, "rows:0", ["x"])(feeds)


def by_mean(rows, w):
    array = tf.TensorArray(tf.float32, 1, dynamic_size=True).unstack(rows)
    return tf.reduce_sum(rows, 0) * w / tf.cast(array.size(), tf.float32)


def by_loop(rows, w):
    array = tf.TensorArray(tf.float32, 1, dynamic_size=True).unstack(rows)
    return tf.while_loop(lambda i, _: i < array.size(), lambda i, a: (i + 1, a + array.read(i) * w), (0, w))[1]


def by_last(rows, w):
    array = tf.TensorArray(tf.float32, tf.shape(rows)[0], element_shape=[4]).unstack(tf.square(rows) * w)
    return tf.gradients(array.read(tf.shape(rows)[0] - 1), w)[0]


@pytest.mark.parametrize("build", [by_mean, by_loop, by_last])
def test_a_function_that_is_called_with_lists_of_two_lengths(build):
    """Regression: both had the first call's."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        function = tf.function(build, input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([4])])
        x, w = tf.placeholder(tf.float32, [5, 4], "x"), tf.placeholder(tf.float32, [4], "w")
        fetches = [function(x[:3], w), function(x, w)]
    feeds = {"x:0": np.arange(20, dtype=np.float32).reshape(5, 4), "w:0": np.float32([1, 2, 3, 4])}
    step = npu_shim.compile_step(graph, fetches, ["x", "w"])
    with tf.Session(graph=graph) as session:
        for actual, expected in zip(step(feeds), session.run(fetches, feeds)):
            np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_the_length_of_a_list_that_is_appended_to_is_refused():
    """Regression: XLA gave the most that it may hold."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], "x")
        empty = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=8, element_dtype=tf.float32)
        tf.cast(length(tf.raw_ops.TensorListPushBack(input_handle=empty, tensor=x)), tf.float32, "count")
    with pytest.raises(PlanError, match=r"'TensorListLength' .* length of a list that is appended to"):
        npu_shim.compile_step(graph, ["count:0"], ["x"])({"x:0": [1.0, 2.0]})
