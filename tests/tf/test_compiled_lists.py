"""Compiled steps with loops of version 2 over lists, and their gradients, beside a session."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

# recurrent cells of TensorFlow 1 are deprecated
pytestmark = [*sessions.COMPILED, pytest.mark.filterwarnings("ignore:.*is deprecated")]
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


def read_on_a_side(x, w):
    rows = tf.TensorArray(tf.float32, TIME).unstack(x)
    side = lambda i, a: tf.cond(tf.reduce_sum(a) < 1.0, lambda: rows.read(i), lambda: tf.zeros_like(a))  # noqa: E731
    body = lambda i, a: (i + 1, a + tf.matmul(side(i, a), w))  # noqa: E731
    return tf.while_loop(lambda i, _: i < TIME, body, (0, tf.zeros([ROWS, WIDTH])), maximum_iterations=TIME)[1]


def of_open_shape(x, w):
    x = tf.placeholder_with_default(x, [None, ROWS, WIDTH])
    return ended(lambda _: lambda i, _: i < tf.shape(x)[0])(x, w)


LOOPS = {
    "ended at once": ended(lambda x: lambda i, _: i < 0),
    "ended by a constant": ended(lambda x: lambda i, _: i < 3),
    "ended by a shape": ended(lambda x: lambda i, _: i < tf.shape(x)[0]),
    "ended by a shape from outside": ended(lambda x: (lambda n: lambda i, _: i <= n)(tf.shape(x)[-1])),
    "ended by an open shape": of_open_shape,
    "ended by the lesser": ended(lambda x: lambda i, _: i < tf.minimum(4, tf.cast(x[0, 0, 0] * 5, tf.int32))),
    "ended by data or a constant": ended(lambda _: lambda i, a: tf.logical_and(a[0, 0] < 9.0, tf.greater(5, i))),
    "map_fn": lambda x, w: tf.map_fn(lambda row: tf.matmul(row, w) + 1.0, x),
    "map_fn of pairs": lambda x, w: tf.map_fn(lambda pair: pair[0] * pair[1], (x, x * w[1]), dtype=tf.float32),
    "scan": lambda x, w: tf.scan(lambda a, row: tf.tanh(tf.matmul(a, w)) + row, x),
    "scan, reversed": lambda x, w: tf.scan(lambda a, row: tf.tanh(tf.matmul(a, w)) + row, x, reverse=True),
    "foldl": lambda x, w: tf.foldl(lambda a, row: tf.matmul(a, w) + row, x),
    "unstacked": unstacked,
    "of two lengths": of_two_lengths,
    "read on a side": read_on_a_side,
    "in a function": lambda x, w: tf.function(lambda x, w: tf.map_fn(lambda row: tf.matmul(row, w), x))(x, w),
    "recurrent": lambda x, w: cell(tf.nn.rnn_cell.BasicRNNCell, x * w[0]),
    "LSTM": lambda x, w: cell(tf.nn.rnn_cell.LSTMCell, x * w[0]),
    "GRU, lengths": lambda x, w: cell(tf.nn.rnn_cell.GRUCell, x * w[0], tf.constant([1, 3])),
}


def trained(loops):
    """(graph, fetches, initializer) of a step that trains, for each of some loops, a w and what the loop makes."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        tf.set_random_seed(3)
        x, fetches = tf.placeholder(tf.float32, [TIME, ROWS, WIDTH], "x"), []
        for number, loop in enumerate(loops):
            with tf.variable_scope("loop%d" % number):
                start = np.linspace(-0.5, 0.7, 16).reshape(4, 4).astype("f")
                w = tf.get_variable("w", initializer=start, use_resource=True)
                loss = tf.reduce_sum(tf.square(loop(x, w)))
                own = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "loop%d/" % number)
                fetches += [loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, var_list=own)]
        return graph, fetches, tf.global_variables_initializer()


def fed(number):
    return {"x:0": np.random.RandomState(number).uniform(-1, 1, [TIME, ROWS, WIDTH]).astype("f")}


CELLS = ("in a function", "recurrent", "LSTM", "GRU, lengths")


@pytest.mark.by_day("cells")
@pytest.mark.parametrize("names", [[n for n in LOOPS if n not in CELLS], CELLS], ids=["loops", "cells"])
def test_they_train_as_in_a_session(names):
    graph, fetches, init = trained([LOOPS[name] for name in names])
    assert_as_in_a_session(graph, fetches, [fed(number) for number in range(3)], init, 1e-5, 1e-6)


def test_it_trains_in_mixed_precision():
    graph, fetches, init = trained([LOOPS["LSTM"]])
    losses = []
    for options in ({"precision_mode": "must_keep_origin_dtype"}, {"precision_mode": "allow_mix_precision"}):
        step = npu_shim.compile_step(graph, fetches, ["x"], initializer=init, profile="gpu", **options)
        losses.append([step(fed(number))[0] for number in range(3)])
    np.testing.assert_allclose(*losses, rtol=2e-2)
    assert losses[0] != losses[1]


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


OF_LISTS = {
    "at known places": written(3, 0, 2, 1),
    "in a loop": written_in_a_loop(4),
    "in a longer one": written_in_a_loop(6),
    "up to and with": written_in_a_loop(4, ends=lambda i, _: i <= 3),
    "the other way round": written_in_a_loop(4, ends=lambda i, _: tf.greater(4, i)),
    "from 1 by 2": written_in_a_loop(6, 7, start=1, step=2),
    "by the number of iterations": written_in_a_loop(3, ends=lambda i, _: i * i < 50, maximum_iterations=3),
    "both": written_in_a_loop(3, ends=lambda i, _: tf.logical_and(i < 9, i < 3)),
    "at a known place, longer": written(2, 0, 3),
    "from nothing": written_in_a_loop(0),
    "in a loop, longer": written_in_a_loop(3),
    "by one": written_in_a_loop(3, ends=lambda i, _: i <= 3),
    "from 1 by 2, longer": written_in_a_loop(5, 7, start=1, step=2),
    "at a computed place": written_in_a_loop(4, index=lambda i: i * 2),
    "downwards": written_in_a_loop(2, start=4, step=-1, ends=lambda i, _: i > 0),
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_a_list_that_may_grow_has_all_its_rows(name):
    """Regression: XLA wrote what came behind the end to the last row, in the engine's sessions too."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2], "x")
        rows = OF_LISTS[name](x) + x
    assert_as_in_a_session(graph, [rows], [{x: np.float32([1.0, 3.0])}], rtol=0, atol=0)


def by_mean(rows, w):
    array = tf.TensorArray(tf.float32, 1, dynamic_size=True).unstack(rows)
    return tf.reduce_sum(rows, 0) * w / tf.cast(array.size(), tf.float32)


def by_loop(rows, w):
    array = tf.TensorArray(tf.float32, 1, dynamic_size=True).unstack(rows)
    return tf.while_loop(lambda i, _: i < array.size(), lambda i, a: (i + 1, a + array.read(i) * w), (0, w))[1]


def by_last(rows, w):
    array = tf.TensorArray(tf.float32, tf.shape(rows)[0], element_shape=[4]).unstack(tf.square(rows) * w)
    return tf.gradients(array.read(tf.shape(rows)[0] - 1), w)[0]


def test_a_function_that_is_called_with_lists_of_two_lengths():
    """Regression: both had the first call's."""
    fetches = []
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x, w = tf.placeholder(tf.float32, [5, 4], "x"), tf.placeholder(tf.float32, [4], "w")
        for build in (by_mean, by_loop, by_last):
            function = tf.function(build, input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([4])])
            fetches += [function(x[:3], w), function(x, w)]
    feeds = {x: np.arange(20, dtype=np.float32).reshape(5, 4), w: np.float32([1, 2, 3, 4])}
    assert_as_in_a_session(graph, fetches, [feeds])


def test_the_length_of_a_list_that_is_appended_to():
    """Regression: XLA gave the most that it may hold."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], "x")
        empty = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=8, element_dtype=tf.float32)
        pushed = tf.raw_ops.TensorListPushBack(input_handle=empty, tensor=x)
        count = tf.identity(tf.raw_ops.TensorListLength(input_handle=pushed))
    assert_as_in_a_session(graph, [count], [{x: [1.0, 2.0]}])
