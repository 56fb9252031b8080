"""Loops, conditions, TensorArrays and Stacks of TensorFlow 1 in real sessions."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.usefixtures("patched", "control_flow_of_version_1")


def test_a_loop_variable_is_low_all_round_and_its_weight_is_cast_once_outside():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 8], seed=1)
        weight = tf.get_variable("w", initializer=np.eye(8, dtype=np.float32) * 0.5, use_resource=True)
        _, y = tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.nn.relu(tf.matmul(h, weight))), [0, x])
        total = tf.reduce_sum(y)
        gradient = tf.gradients(total, weight)[0]
        ran, plain = sessions.both([total, gradient])
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    assert len(ran.dtypes("MatMul")) == 3
    loop = [node for node in ran.nodes if node.op == "Merge" and node.name.startswith("while/")]
    assert sorted(tf.as_dtype(sessions.decided_dtype(node)).name for node in loop) == ["float16", "int32"]
    stacks = [node for node in ran.nodes if node.op == "StackPushV2"]
    pushed = [node for node in stacks if node.attr["T"].type != tf.int32.as_datatype_enum]
    assert {tf.as_dtype(sessions.decided_dtype(node)).name for node in pushed} == {"float16"}
    frames = {node.name for node in ran.nodes if node.op == "Enter"}
    casts = [node for node in ran.nodes if node.op == "Cast" and node.attr["DstT"].type == tf.float16.as_datatype_enum]
    assert not [cast.name for cast in casts if cast.input[0].split(":")[0] in frames]
    # five products of matrices of 8 columns, each rounded once to float16
    assert np.allclose(ran.values[0], plain[0], rtol=5 * 8 * 2**-11)
    assert np.allclose(ran.values[1], plain[1], rtol=5 * 8 * 2**-11, atol=1e-3)


def test_a_loop_variable_that_only_adds_keeps_float32():
    """4,096 times a product of one: float16 would stop at 2,048."""
    with tf.Graph().as_default():
        one = tf.placeholder_with_default(np.ones([1, 1], np.float32), [1, 1])
        _, total = tf.while_loop(
            lambda i, _: i < 4096, lambda i, s: (i + 1, s + tf.matmul(one, one)), [0, tf.zeros([1, 1])]
        )
        ran = sessions.run(total)
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    assert ran.values == [[4096.0]]


def test_a_computed_float32_value_keeps_its_loop_in_float32():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4], seed=1)
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.exp(-tf.matmul(h, h))), [0, x])
        ran, plain = sessions.both(y)
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    assert {d for n, d in ran.dtypes("Merge").items() if n.startswith("while/")} == {"float32", "int32"}
    assert np.allclose(ran.values, plain, rtol=0.05)


def test_nested_loops_agree_with_float32():
    with tf.Graph().as_default():
        weight = tf.get_variable("w", initializer=np.eye(4, dtype=np.float32), use_resource=True)

        def outer(i, h):
            _, h = tf.while_loop(lambda j, _: j < 3, lambda j, g: (j + 1, tf.tanh(tf.matmul(g, weight))), [0, h])
            return i + 1, h

        _, y = tf.while_loop(lambda i, _: i < 2, outer, [0, tf.random_uniform([2, 4], seed=3)])
        gradient = tf.gradients(y, weight)[0]
        ran, plain = sessions.both([y, gradient])
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    for got, expected in zip(ran.values, plain):
        assert np.allclose(got, expected, rtol=6 * 4 * 2**-11, atol=2e-3)


def test_both_branches_of_a_condition_meet_in_one_dtype():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4], seed=1)
        which = tf.placeholder(tf.bool, [])
        y = tf.cond(which, lambda: tf.matmul(x, x), lambda: tf.exp(x))
        for value in (True, False):
            ran, plain = sessions.both([y], {which: value})
            assert np.allclose(ran.values, plain, rtol=4 * 2**-10)


def test_rnn_with_tensor_arrays_trains():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 7, 3])
        cell = tf.nn.rnn_cell.BasicLSTMCell(5)
        out, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
        loss = tf.reduce_mean(tf.square(out))
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        feeds = {x: np.random.RandomState(0).randn(2, 7, 3)}
        with sessions.started(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            first = sessions.Ran(session, [loss, step], feeds)
            for _ in range(20):
                last, _ = session.run([loss, step], feeds)
    assert set(first.dtypes("MatMul").values()) == {"float16"}
    pushed = first.dtypes("StackPushV2")
    in_float32 = [name for name in pushed if pushed[name] == "float32"]
    # a TensorArray's flow is a float32 scalar by definition; it orders, and carries no data
    assert all("flow" in name for name in in_float32)
    assert "float16" in pushed.values()
    assert last < first.values[0]


def test_function_bodies_are_low_where_their_callers_are():
    with tf.Graph().as_default():

        @tf.function(autograph=False)
        def body(a):
            return tf.nn.relu(tf.matmul(a, a))

        x = tf.random_uniform([4, 4], seed=1)
        ran, plain = sessions.both([tf.matmul(body(tf.matmul(x, x)), x)])
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    assert np.allclose(ran.values, plain, rtol=4 * 4 * 2**-11)
