"""tf.contrib.graph_editor: walks and copies as TensorFlow 1.15's, and gradients with recomputation as without."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat import names

if names.tensorflow_1():
    import tensorflow.contrib.graph_editor as ge
else:
    from npu_shim.compat.contrib import graph_editor as ge

pytestmark = pytest.mark.filterwarnings("ignore")


def chain():
    a = tf.placeholder(tf.float32, [2, 2], "a")
    b = tf.tanh(a, name="b")
    c = tf.matmul(b, b, name="c")
    d = tf.add(c, a, name="d")
    return a, b, c, d


def named(ops):
    return sorted(op.name for op in ops)


def test_walks():
    with tf.Graph().as_default() as graph:
        a, b, c, d = chain()
        e = tf.exp(d, name="e")
        assert named(ge.get_backward_walk_ops(c.op)) == ["a", "b", "c"]
        assert named(ge.get_backward_walk_ops([c.op], inclusive=False, stop_at_ts=[b])) == []
        assert named(ge.get_backward_walk_ops(d, within_ops=[c.op, d.op])) == ["c", "d"]
        assert named(ge.get_forward_walk_ops([b.op])) == ["b", "c", "d", "e"]
        assert named(ge.get_forward_walk_ops([a], stop_at_ts=[d])) == ["b", "c", "d"]
        assert named(ge.get_forward_walk_ops(b.op, inclusive=False, within_ops_fn=lambda op: op.name != "d")) == ["c"]
        assert named(ge.select_ops("^[bc]$", graph=graph)) == ["b", "c"]
        assert [t.name for t in ge.filter_ts([c.op], True)] == ["b:0", "c:0"]
        assert [t.name for t in ge.filter_ts_from_regex([c.op, d.op], "^[ad]")] == ["a:0", "d:0"]
        view = ge.sgv([b.op, c.op])
        assert (named(view.ops), list(view.inputs), list(view.outputs)) == (["b", "c"], [a], [c])
        assert e.op not in view.ops
        with pytest.raises(TypeError, match=r"Operation"):
            ge.get_backward_walk_ops(["foo"])


def test_a_copy_computes_the_same_from_what_it_is_given():
    with tf.Graph().as_default(), tf.Session() as session:
        a, b, c, d = chain()
        other = tf.constant(np.eye(2), tf.float32)
        with tf.control_dependencies([b]):
            late = tf.square(c, name="late")
        copied, info = ge.copy_with_input_replacements(ge.sgv([b.op, c.op, d.op, late.op]), {a: other})
        assert info.transformed(d.op) is info.transformed(d).op
        assert info.original(info.transformed(c)) is c
        assert info.transformed(late.op).control_inputs[0] is info.transformed(b.op)
        assert len(copied.ops) == 4
        assert info.transformed(d).shape == d.shape
        value = np.arange(4, dtype=np.float32).reshape(2, 2)
        np.testing.assert_array_equal(session.run(info.transformed(d)), session.run(d, {a: np.eye(2)}))
        replaced = ge.graph_replace(d, {c: other})
        np.testing.assert_array_equal(session.run(replaced, {a: value}), value + np.eye(2))


def test_inputs_are_moved_where_they_may_be():
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = tf.constant(1.0, name="a"), tf.constant(10.0, name="b")
        x, y = tf.add(a, a, name="x"), tf.negative(a, name="y")
        assert ge.reroute_ts([b], [a], can_modify=[x.op]) == 2
        assert session.run([x, y]) == [20.0, -1.0]
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = tf.constant(1.0), tf.constant(10.0)
        x, y = tf.negative(a), tf.negative(b)
        assert ge.swap_ts([a], [b]) == 2
        assert session.run([x, y]) == [-10.0, -1.0]
        ge.add_control_inputs(x.op, [y.op])
        assert list(x.op.control_inputs) == [y.op]
        with pytest.raises(ValueError, match="already a control_input"):
            ge.add_control_inputs(x.op, [y.op])
        ge.remove_control_inputs(x.op, [y.op])
        assert not x.op.control_inputs


def added(one, other):
    return other if one is None else one if other is None else one + other


def recomputing(ys, xs, checkpoints):
    """Gradients that compute again what lies between checkpoints, each part after the gradient behind it."""
    forward = ge.get_forward_walk_ops([x.op for x in xs], within_ops=ge.get_backward_walk_ops(ys))
    forward = [op for op in forward if op.inputs and "/read" not in op.name and "Read" not in op.name]
    stops = {c: tf.stop_gradient(c) for c in checkpoints}
    totals, behind = None, None
    for top in (ys[0], *reversed(checkpoints)):
        others = [c for c in checkpoints if c is not top]
        walk = ge.get_backward_walk_ops([top.op], stop_at_ts=others)
        part = [op for op in walk if op in set(forward) and op not in {c.op for c in others}]
        copied, info = ge.copy_with_input_replacements(ge.sgv(part), {})
        ge.reroute_ts([stops[c] for c in others], others, can_modify=copied.ops)
        if behind is not None:
            for op in copied.ops:
                ge.add_control_inputs(op, [behind.op])
        earlier = checkpoints[: checkpoints.index(top)] if top in stops else checkpoints
        wanted = [*xs, *([stops[earlier[-1]]] if earlier else [])]
        found = tf.gradients(info.transformed(top), wanted, None if behind is None else [behind])
        parts = found[: len(xs)]
        totals = parts if totals is None else [added(*pair) for pair in zip(totals, parts)]
        behind = found[-1]
    return totals


@pytest.mark.parametrize("resource", [False, True])
def test_gradients_with_recomputation_are_those_without(resource):
    rng = np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        h = tf.constant(rng.randn(5, 4), tf.float32)
        hidden, weights = [], []
        for layer in range(6):
            start = tf.constant_initializer(rng.randn(4, 4) / 2)
            w = tf.get_variable("w%d" % layer, [4, 4], initializer=start, use_resource=resource)
            weights.append(w)
            h = tf.nn.dropout(tf.tanh(tf.matmul(h, w)), keep_prob=0.9, seed=layer + 1)
            hidden.append(h)
        loss = tf.reduce_sum(tf.square(h))
        before = len(tf.get_default_graph().get_operations())
        again = recomputing([loss], weights, [hidden[1], hidden[3]])
        assert any("MatMul_" in op.name for op in tf.get_default_graph().get_operations()[before:])
        plain = tf.gradients(loss, weights)
        session.run(tf.global_variables_initializer())
        found, wanted = session.run([again, plain])
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=2.0**-20, atol=2.0**-20)


@pytest.mark.skipif(names.tensorflow_1(), reason="the original copies it, and what it computes is wrong")
def test_a_loop_is_refused_and_unseeded_randomness_is_said(caplog):
    with tf.Graph().as_default():
        x = tf.random_uniform([2])
        ge.copy(ge.sgv([x.op, *ge.get_backward_walk_ops(x)]))
        assert "random_uniform/RandomUniform" in caplog.text
        loop = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
        inside = [op for op in tf.get_default_graph().get_operations() if op.type == "Enter"]
        if inside:
            with pytest.raises(ValueError, match="is in a loop"):
                ge.copy(ge.get_backward_walk_ops(loop))
