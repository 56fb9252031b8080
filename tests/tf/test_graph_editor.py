"""tf.contrib.graph_editor: walks and copies as TensorFlow 1.15's, and gradients with recomputation as without."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

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
        gradients = tf.gradients(info.transformed(top), wanted, None if behind is None else [behind])
        parts = gradients[: len(xs)]
        totals = parts if totals is None else [added(*pair) for pair in zip(totals, parts)]
        behind = gradients[-1]
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
        actual, wanted = session.run([again, plain])
        for one, other in zip(actual, wanted):
            np.testing.assert_allclose(one, other, rtol=2.0**-20, atol=2.0**-20)


def test_unseeded_randomness_is_said(caplog):
    if names.tensorflow_1():
        pytest.skip("TensorFlow 1 has its own, which says nothing")
    with tf.Graph().as_default():
        x = tf.random_uniform([2])
        ge.copy(ge.sgv([x.op, *ge.get_backward_walk_ops(x)]))
        assert "random_uniform/RandomUniform" in caplog.text


def test_a_loop_is_copied_into_another_graph_and_beside_itself():
    with tf.Graph().as_default() as graph:
        last = tf.placeholder(tf.int32, [], "last")
        _, total = tf.while_loop(lambda i, s: i <= last, lambda i, s: (i + 1, s + i), [tf.constant(1), tf.constant(0)])
        doubled = total * 2
    other = tf.Graph()
    _, info = ge.copy(graph, dst_graph=other, dst_scope="copied")
    with tf.Session(graph=other) as session:
        assert session.run(info.transformed(doubled), {info.transformed(last): 10}) == 110
    if names.tensorflow_1():
        return  # both loops have one frame there, and compute something else
    with graph.as_default(), tf.Session() as session:
        _, info = ge.copy(ge.sgv(graph), dst_scope="again")
        fed = {last: 10, info.transformed(last): 4}
        assert session.run([doubled, info.transformed(doubled)], fed) == [110, 20]


def test_views_show_what_they_are_asked_to():
    with tf.Graph().as_default() as graph:
        a, b, c, d = chain()
        view = ge.sgv(c.op, d.op)
        assert (list(view.inputs), list(view.outputs)) == ([b, a], [d])
        assert list(view.remap_inputs([1]).inputs) == [a]
        assert list(view.remap([a], [0, d]).outputs) == [d, d]
        assert list(ge.sgv(b.op).remap_outputs_to_consumers().outputs) == [b, b]  # c takes it twice, and is one
        passing = ge.SubGraphView([c.op], [a, b])
        assert list(passing.passthroughs) == [a]
        assert list(passing.outputs) == [c, a]
        with pytest.raises(ValueError, match=r"range|Out"):
            view.remap_inputs([2])
        assert [[t.name for t in ts] for ts in ge.compute_boundary_ts([b.op, c.op])] == [["a:0"], ["c:0"], ["b:0"]]
        assert named(ge.get_within_boundary_ops(graph, b.op, [d.op])) == ["a", "b", "c", "d"]
        assert named(ge.get_walks_intersection_ops([b.op], [c.op])) == ["b", "c"]
        ops, tensors = ge.select_ops_and_ts("^[ab]$", "(?#ts)^c:0", graph=graph)
        assert (named(ops), tensors) == (["a", "b"], [c])


def test_parts_are_detached_joined_and_bypassed():
    with tf.Graph().as_default(), tf.Session() as session:
        a, _, c, d = chain()
        value = np.arange(4, dtype=np.float32).reshape(2, 2) / 4
        _, placeholders, _ = ge.detach(ge.sgv(c.op))
        assert [t.op.name for t in placeholders] == ["geph__b_0"]
        np.testing.assert_array_equal(session.run(c, {placeholders[0]: value}), value @ value)
    with tf.Graph().as_default(), tf.Session() as session:
        a, _, c, d = chain()
        ge.bypass(ge.sgv(c.op))
        np.testing.assert_allclose(session.run(d, {a: value}), np.tanh(value) + value, rtol=2.0**-20)
    with tf.Graph().as_default(), tf.Session() as session:
        a, _, _, d = chain()
        other = tf.constant(np.eye(2, dtype=np.float32))
        ge.connect(ge.sgv(other.op), ge.sgv(d.op).remap_inputs([0]))
        np.testing.assert_array_equal(session.run(d, {a: value}), np.eye(2) + value)
        with pytest.raises(ValueError, match="compatible"):
            ge.reroute_ts([tf.zeros([3])], [a])


def test_a_transformer_changes_what_it_copies():
    with tf.Graph().as_default() as graph:
        chain()
    transformer = ge.Transformer()

    def handler(info, op, inputs):
        copy, outputs = ge.copy_op_handler(info, op, inputs)
        with info.graph_.as_default():
            return copy, [tf.negative(outputs[0])] if op.type == "Tanh" else outputs

    transformer.transform_op_handler = handler
    other = tf.Graph()
    _, info = transformer(ge.sgv(graph), other, "", "")
    with tf.Session(graph=other) as session:
        a, d = (info.transformed(graph.get_tensor_by_name(name)) for name in ("a:0", "d:0"))
        value = np.arange(4, dtype=np.float32).reshape(2, 2) / 4
        wanted = np.tanh(value) @ np.tanh(value) + value
        np.testing.assert_allclose(session.run(d, {a: value}), wanted, rtol=2.0**-20)
    with graph.as_default():
        d = graph.get_operation_by_name("d")
        _, info = ge.copy(ge.sgv(d), dst_scope="part")
        assert info.transformed(d).name == "part/d"
        assert [t.op.name for t in info.transformed(d).inputs] == ["part/geph__c_0", "part/geph__a_0"]
