"""Control flow of version 2 and functions in sessions, where TensorFlow lowers most of it before the rewrite."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import keep_dtype_scope

pytestmark = pytest.mark.usefixtures("patched", "control_flow_of_version_2")
HALF = tf.float16.as_datatype_enum
LISTS = "TensorList"


def element_dtypes(ran):
    """Dtypes of the lists of floats that were executed."""
    lists = [node for node in ran.nodes if LISTS in node.op and "element_dtype" in node.attr]
    return {tf.as_dtype(n.attr["element_dtype"].type).name for n in lists} - {"int32", "bool", "variant"}


def test_a_loop_its_gradient_and_their_lists_are_low():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 8], seed=1)
        weight = tf.get_variable("w", initializer=np.eye(8, dtype=np.float32) * 0.5, use_resource=True)
        _, y = tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.nn.relu(tf.matmul(h, weight))), [0, x])
        ran, plain = sessions.both([tf.reduce_sum(y), tf.gradients(y, weight)[0]])
    assert set(ran.dtypes("MatMul").values()) == {"float16"}
    assert len(ran.dtypes("MatMul")) == 3
    assert element_dtypes(ran) == {"float16"}
    inside = {n.name for n in ran.nodes if n.op in ("Enter", "Merge", "Switch")}
    casts = [n for n in ran.nodes if n.op == "Cast" and n.attr["DstT"].type == HALF]
    assert not [cast.name for cast in casts if cast.input[0].split(":")[0] in inside]
    # five products of matrices of 8 columns, each rounded once to float16
    assert np.allclose(ran.values[0], plain[0], rtol=5 * 8 * 2**-11)
    assert np.allclose(ran.values[1], plain[1], rtol=5 * 8 * 2**-11, atol=1e-3)


def test_an_lstm_trains_like_float32():
    losses = {}
    for mode in ("must_keep_origin_dtype", "allow_mix_precision"):
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            x = tf.placeholder(tf.float32, [2, 7, 3])
            cell = tf.nn.rnn_cell.LSTMCell(5, initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
            out, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
            loss = tf.reduce_mean(tf.square(out - 0.5))
            step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
            feeds = {x: np.random.RandomState(0).randn(2, 7, 3)}
            with sessions.started(config=sessions.config(precision_mode=mode, npu_shim_profile="gpu")) as session:
                first = sessions.Ran(session, [loss, step], feeds)
                losses[mode] = [session.run([loss, step], feeds)[0] for _ in range(20)]
    assert set(first.dtypes("MatMul").values()) == {"float16"}
    assert element_dtypes(first) == {"float16"}
    plain, mixed = losses.values()
    assert mixed[-1] < 0.9 * mixed[0]
    # seven steps of a dozen roundings each, in every training step on weights that have drifted by as much
    assert np.allclose(plain, mixed, rtol=7 * 12 * 2**-11)


def test_branches_and_functions():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4], seed=1)
        which = tf.placeholder(tf.bool, [])
        y = tf.cond(which, lambda: tf.matmul(x, x), lambda: tf.nn.relu(tf.matmul(x, x)))
        body = tf.function(lambda a: tf.tanh(tf.matmul(a, a)), autograph=False)
        fetches = [body(y), tf.gradients(body(y), x)[0]]
        for value in (True, False):
            ran, plain = sessions.both(fetches, {which: value})
            assert set(ran.dtypes("MatMul").values()) == {"float16"}
            for got, expected in zip(ran.values, plain):
                assert np.allclose(got, expected, rtol=0.05, atol=4 * 4 * 2**-10)


@pytest.mark.parametrize("attribute", ["_noinline", "_XlaMustCompile"])
def test_functions_that_are_not_inlined_get_low_signatures(attribute):
    if attribute == "_XlaMustCompile" and tf.__version__.startswith("1."):
        pytest.skip("TensorFlow 1.15 does not know _XlaMustCompile")
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        body = tf.function(lambda a: tf.nn.relu(tf.matmul(a, a)), autograph=False)
        fetch = tf.matmul(body(tf.matmul(x, x)), x).name
    graph_def = graph.as_graph_def()
    graph_def.library.function[0].attr[attribute].b = True
    next(node for node in graph_def.node if "PartitionedCall" in node.op).attr[attribute].b = True
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        ran, plain = sessions.both([fetch], {"x:0": np.random.RandomState(0).uniform(0, 1, [4, 4])})
    [call] = [node for node in ran.nodes if "PartitionedCall" in node.op]
    assert list(call.attr["Tin"].list.type) == list(call.attr["Tout"].list.type) == [HALF]
    assert np.allclose(ran.values, plain, rtol=4 * 4 * 2**-11)


@pytest.mark.parametrize("jit", ["on", "off"])
def test_with_and_without_xla(jit):
    with tf.Graph().as_default():
        x = tf.constant(np.random.RandomState(0).uniform(-1, 1, [4, 4]).astype(np.float32))
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, x))), [0, x])
        fetches = [y, tf.gradients(y, x)[0]]
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision", npu_shim_xla=jit)) as session:
            values = session.run(fetches)
        with tf.Session() as session:
            plain = session.run(fetches)
    for got, expected in zip(values, plain):
        assert np.allclose(got, expected, atol=3 * 4 * 4 * 2**-11)


@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16"])
def test_what_a_scope_keeps_in_a_fetched_function_is_exact(mode):
    """Was silent: the node that stands for the call rounded what it gave."""
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4], seed=1)
        with keep_dtype_scope():
            result = tf.function(lambda a: tf.matmul(a, a) / 3, autograph=False)(x)
        plain = sessions.run([result], precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")
        np.testing.assert_array_equal(sessions.run([result], precision_mode=mode).values, plain.values)
