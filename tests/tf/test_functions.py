"""Functions and control flow of version 2 in graphs that are rewritten offline: bodies follow their callers."""

import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from sessions import decided_dtype

import npu_shim
from npu_shim.rewriter.graphdef import functions

pytestmark = pytest.mark.usefixtures("control_flow_of_version_2")
EPSILON = 2.0**-11  # relative error of one rounding to float16
X = np.random.RandomState(0).uniform(-1, 1, [4, 4]).astype(np.float32)
HALF, FLOAT = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum


class Case:
    """A graph, its rewritten form and its plan, and what both give in a plain session."""

    def __init__(self, build, mode="allow_mix_precision", change=None, **options):
        with tf.Graph().as_default() as graph:
            fetches = build(tf.placeholder_with_default(X, [4, 4], "x"))
            self.fetches = [fetch.name for fetch in fetches]
            self.init = tf.global_variables_initializer().name
        self.graph_def = graph.as_graph_def()
        if change is not None:
            change(self.graph_def)
        self.options = {"precision_mode": mode, **options}
        before = self.graph_def.SerializeToString(deterministic=True)
        self.rewritten, self.plan = self.rewrite(self.graph_def)
        assert self.graph_def.SerializeToString(deterministic=True) == before
        assert self.rewrite(self.rewritten)[0] is self.rewritten

    def rewrite(self, graph_def):
        return npu_shim.rewrite(graph_def, [*self.fetches, self.init], **self.options)

    def values(self, graph_def):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.import_graph_def(graph_def, name="")
            session.run(self.init)
            return session.run(self.fetches)

    def agrees(self, ops):
        """Both forms give the same up to `ops` roundings in a row, on values below 4."""
        plain, mixed = self.values(self.graph_def), self.values(self.rewritten)
        for one, other in zip(plain, mixed):
            np.testing.assert_allclose(one, other, rtol=ops * EPSILON, atol=4 * ops * EPSILON)
        return self

    def dtypes(self, *ops):
        """Dtypes of ops in the graph and in every function that it reaches."""
        library = {function.signature.name: function for function in self.rewritten.library.function}
        dtypes, seen, waiting = set(), set(), [self.rewritten.node]
        while waiting:
            for node in waiting.pop():
                if node.op in ops:
                    dtypes.add(decided_dtype(node, "element_dtype" if "element_dtype" in node.attr else "T"))
                new = [name for name in functions.called(node, library) if name in library and name not in seen]
                seen.update(new)
                waiting += [library[name].node_def for name in new]
        return dtypes

    def calls(self, *ops):
        return [node for node in self.rewritten.node if node.op in ops]

    def function(self, name):
        return next(f for f in self.rewritten.library.function if f.signature.name == name)


def function_of(body):
    return tf.function(body, autograph=False)


def weight():
    return tf.get_variable("w", initializer=np.eye(4, dtype=np.float32) * 0.5, use_resource=True)


def loop(x):
    w = weight()
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.nn.relu(tf.matmul(h, w))), [0, x])
    return [y, tf.gradients(y, w)[0]]


def condition(x):
    y = tf.cond(
        tf.placeholder_with_default(True, []), lambda: tf.matmul(x, x), lambda: tf.nn.relu(tf.matmul(x, x))
    )
    return [tf.matmul(y, x), tf.gradients(y, x)[0]]


def case(x):
    branches = [lambda: tf.matmul(x, x), lambda: tf.exp(x), lambda: tf.nn.relu(tf.matmul(x, x))]
    y = tf.switch_case(tf.placeholder_with_default(2, []), branches)
    return [tf.matmul(y, x), tf.gradients(y, x)[0]]


def nested(x):
    w = weight()
    inner = function_of(lambda g: tf.tanh(tf.matmul(g, w)))

    def outer(i, h):
        _, h = tf.while_loop(
            lambda j, _: j < 2, lambda j, g: (j + 1, tf.cond(j > 0, lambda: inner(g), lambda: tf.matmul(g, g))), [0, h]
        )
        return i + 1, h

    _, y = tf.while_loop(lambda i, _: i < 2, outer, [0, x])
    return [y, tf.gradients(y, w)[0]]


def call(x):
    body = function_of(lambda a: tf.nn.relu(tf.matmul(a, a)))
    return [tf.matmul(body(tf.matmul(x, x)), x)]


@pytest.mark.parametrize("build", [loop, condition, case, nested, call])
@pytest.mark.parametrize("mode", ["allow_mix_precision", "allow_fp32_to_fp16", "force_fp16"])
def test_every_matrix_product_is_low_wherever_it_is(build, mode):
    done = Case(build, mode).agrees(40)
    assert done.dtypes("MatMul", "BatchMatMulV2") == {HALF}


def counted(x):
    """What a loop with a float counter gives, by the loop's own name."""
    results = tf.while_loop(lambda t, _: t < 5.0, lambda t, h: (t + 1.0, tf.matmul(h, h)), [0.0, x / 8])
    return [result.op.inputs[0] for result in results]


@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16"])
def test_results_of_a_fetched_loop_come_in_the_dtypes_that_they_have_there(mode):
    Case(counted, mode).agrees(40)


def test_a_signature_is_low_where_both_sides_are():
    done = Case(call, device="GPU")  # on a CPU products run in float32, between casts
    [node] = done.calls("PartitionedCall", "StatefulPartitionedCall")
    assert node.attr["Tin"].list.type == node.attr["Tout"].list.type == [HALF]
    signature = done.function(node.attr["f"].func.name).signature
    assert [arg.type for arg in (*signature.input_arg, *signature.output_arg)] == [HALF, HALF]
    assert not [n for n in done.function(signature.name).node_def if n.op == "Cast"]
    assert len(done.plan.casts) == 2  # x before, the fetch behind


def test_a_float32_body_keeps_its_signature_and_the_cast_stands_at_the_call():
    body = function_of(lambda a: tf.exp(a))
    done = Case(lambda x: [tf.matmul(body(tf.matmul(x, x)), x)]).agrees(8)
    [node] = done.calls("PartitionedCall")
    signature = done.function(node.attr["f"].func.name).signature
    assert signature.output_arg[0].type == FLOAT


def test_a_loop_invariant_is_cast_outside_the_loop():
    done = Case(loop, device="GPU")
    loops = done.calls("While", "StatelessWhile")
    assert len(loops) == 2
    for node in loops:
        body = done.function(node.attr["body"].func.name)
        given = {arg.name for arg in body.signature.input_arg}
        assert not [n.name for n in body.node_def if n.op == "Cast" and n.input[0] in given]


def test_what_adds_up_in_a_loop_keeps_float32():
    def count(x):
        one = tf.placeholder_with_default(np.ones([1, 1], np.float32), [1, 1])
        start = tf.zeros([1, 1])
        return [tf.while_loop(lambda i, _: i < 4096, lambda i, s: (i + 1, s + tf.matmul(one, one)), [0, start])[1]]

    done = Case(count)
    assert done.values(done.rewritten)[0] == [[4096.0]]


def test_call_sites_with_equal_decisions_share_a_function_and_others_do_not():
    body = function_of(lambda a: tf.nn.relu(a))

    def build(x):
        low = [body(tf.matmul(x, x)), body(tf.matmul(x, x, transpose_b=True))]
        return [*low, body(tf.exp(x))]

    done = Case(build).agrees(8)
    names = [node.attr["f"].func.name for node in done.calls("PartitionedCall")]
    assert len(names) == 3
    assert len(set(names)) == 2
    original = {function.signature.name for function in done.graph_def.library.function}
    assert len(set(names) & original) == 1
    assert original <= {function.signature.name for function in done.rewritten.library.function}


def test_a_fetched_call_is_low_and_gives_float32():
    def build(x):
        y = function_of(lambda a: (tf.nn.relu(tf.matmul(a, a)), tf.exp(a)))(tf.matmul(x, x))
        call_op = y[0].op.inputs[0].op if y[0].op.type == "Identity" else y[0].op
        return [call_op.outputs[0], call_op.outputs[1], tf.matmul(y[0], y[1])]

    done = Case(build).agrees(16)
    [node] = done.calls("PartitionedCall")
    assert list(node.attr["Tout"].list.type) == [HALF, FLOAT]
    assert done.dtypes("MatMul") == {HALF}


@pytest.mark.parametrize("called", [False, True])
def test_a_fetched_loop_is_low_and_gives_float32(called):
    """A loop's frame has the name of its call, which is another one below the fetched name."""
    def repeated(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.matmul(h, h)), [0, x])[1]

    def build(x):
        y = (function_of(repeated) if called else repeated)(x)
        kind = "PartitionedCall" if called else "While"
        op = next(op for op in tf.get_default_graph().get_operations() if op.type.endswith(kind))
        return [next(t for t in op.outputs if t.dtype == tf.float32), tf.nn.relu(y)]

    done = Case(build, "force_fp16").agrees(40)
    name = done.fetches[0].partition(":")[0]
    assert {node.op for node in done.rewritten.node if node.name == name} <= {"Cast", "IdentityN"}  # not the call
    assert done.dtypes("MatMul") == {HALF}


def test_a_fed_call_stays_as_it_is():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4])
        y = function_of(lambda a: tf.matmul(a, a))(x)
        fed = y.op.inputs[0] if y.op.type == "Identity" else y
        z = tf.matmul(fed, fed, name="z")
    graph_def = graph.as_graph_def()
    rewritten, _ = npu_shim.rewrite(graph_def, [z.name], [fed.name], precision_mode="allow_mix_precision")
    assert [f.signature.name for f in rewritten.library.function] == [
        f.signature.name for f in graph_def.library.function
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(rewritten, name="")
        assert np.allclose(session.run(z.name, {fed.name: X}), X @ X, atol=4 * 4 * EPSILON)


def test_a_function_that_calls_itself_is_left_with_a_warning():
    def recurse(graph_def):
        [function] = graph_def.library.function
        call_node = next(node for node in graph_def.node if "PartitionedCall" in node.op)
        again = function.node_def.add()
        again.CopyFrom(call_node)
        again.name, again.input[:] = "again", [function.signature.input_arg[0].name]

    done = Case(call, change=recurse)
    assert any("calls itself" in warning for warning in done.plan.warnings)
    assert done.rewritten.library == done.graph_def.library
    matmuls = [decided_dtype(node) for node in done.rewritten.node if node.op == "MatMul"]
    assert matmuls == [HALF, HALF]


def test_the_caller_of_a_function_that_calls_itself_is_not_left():
    inner = function_of(lambda a: tf.nn.relu(tf.matmul(a, a)))
    outer = function_of(lambda a: tf.tanh(tf.matmul(inner(tf.matmul(a, a)), a)))

    def recurse(graph_def):
        function = next(f for f in graph_def.library.function if any(n.op == "Relu" for n in f.node_def))
        caller = next(f for f in graph_def.library.function if f is not function and len(f.node_def) > 3)
        again = function.node_def.add()
        again.CopyFrom(next(node for node in caller.node_def if "PartitionedCall" in node.op))
        again.name, again.input[:] = "again", [function.signature.input_arg[0].name]

    done = Case(lambda x: [outer(x)], change=recurse)
    assert len([warning for warning in done.plan.warnings if "calls itself" in warning]) == 1
    [node] = done.calls("PartitionedCall", "StatefulPartitionedCall")
    body = done.function(node.attr["f"].func.name).node_def
    assert [decided_dtype(n) for n in body if n.op == "MatMul"] == [HALF, HALF]


def test_a_function_that_would_become_too_large_is_left_with_a_warning(monkeypatch):
    monkeypatch.setattr(functions, "MOST_NODES", 2)
    done = Case(call).agrees(16)
    assert any("nodes" in warning for warning in done.plan.warnings)
    assert done.rewritten.library == done.graph_def.library


def test_a_call_in_a_scope_that_keeps_dtypes_is_left():
    def build(x):
        with tf.get_default_graph()._attr_scope({"_keep_dtype": tf.AttrValue(i=1)}):
            y = function_of(lambda a: tf.matmul(a, a))(tf.identity(x))
        return [tf.matmul(y, x)]

    done = Case(build).agrees(8)
    assert done.rewritten.library == done.graph_def.library


def array_read_by(called):
    """A TensorArray of version 1 that a product is written to, and that `called` reads."""

    def build(x):
        array = tf.raw_ops.TensorArrayV3(size=1, dtype=tf.float32)
        flow = tf.raw_ops.TensorArrayWriteV3(handle=array.handle, index=0, value=tf.matmul(x, x), flow_in=array.flow)
        return [tf.matmul(called(array.handle, flow), x)]

    return build


@function_of
def read_array(handle, flow):
    value = tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)
    return tf.ensure_shape(value, [4, 4])


def read_array_as_written(handle, flow):
    with tf.get_default_graph()._attr_scope({"_keep_dtype": tf.AttrValue(i=1)}):
        return read_array(handle, flow)


@pytest.mark.parametrize(("called", "dtype"), [(read_array, HALF), (read_array_as_written, FLOAT)])
def test_an_array_that_a_function_reads_has_one_dtype_in_both(called, dtype):
    done = Case(array_read_by(called)).agrees(8)
    assert [node.attr["dtype"].type for node in done.rewritten.node if node.op == "TensorArrayV3"] == [dtype]
    assert done.dtypes("MatMul") == {HALF}


def test_functions_of_data_sets_are_never_touched():
    body = function_of(lambda a: tf.matmul(a, a))

    def build(x):
        data = tf.data.Dataset.from_tensors(X).map(lambda a: body(a)).repeat()
        return [tf.matmul(body(tf.matmul(x, x)), tf.data.make_one_shot_iterator(data).get_next())]

    done = Case(build).agrees(32)
    before = {function.signature.name: function for function in done.graph_def.library.function}
    after = {function.signature.name: function for function in done.rewritten.library.function}
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert {decided_dtype(node) for node in done.rewritten.node if node.op == "MatMul"} == {HALF}


def test_attributes_that_exchange_functions_of_one_signature_do_not_go_to_a_new_one():
    def name_api(graph_def):
        graph_def.library.function[0].attr["api_implements"].s = b"lstm"
        graph_def.library.function[0].attr["noinline"].b = True

    done = Case(call, change=name_api).agrees(16)
    [node] = done.calls("PartitionedCall")
    function = done.function(node.attr["f"].func.name)
    assert "api_implements" not in function.attr
    assert function.attr["noinline"].b


def test_the_order_of_nodes_functions_and_bodies_does_not_matter():
    done = Case(nested)
    other = tf.GraphDef()
    other.CopyFrom(done.graph_def)
    for repeated in (other.node, other.library.function):
        shuffled = list(repeated)
        random.Random(0).shuffle(shuffled)
        del repeated[:]
        repeated.extend(shuffled)
    again, _ = done.rewrite(other)
    assert again.node == done.rewritten.node
    bodies = {f.signature.name: f for f in done.rewritten.library.function}
    assert {f.signature.name: f for f in again.library.function} == bodies


def test_a_mode_that_raises_raises_bodies_too():
    def build(x):
        y = function_of(lambda a: tf.matmul(a, a))(tf.cast(x, tf.float16))
        return [tf.cast(y, tf.float32)]

    done = Case(build, "force_fp32").agrees(8)
    assert done.dtypes("MatMul") == {FLOAT}


def test_a_mode_that_lowers_nothing_returns_the_same_graph():
    done = Case(nested, "must_keep_origin_dtype", profile="gpu")
    assert done.rewritten is done.graph_def


def test_an_op_in_a_body_is_customized_by_the_name_that_the_plan_shows(tmp_path):
    name = next(d.node for d in Case(call).plan.decisions() if d.op == "MatMul" and "[body]/" in d.node)
    path = tmp_path / "dtypes.cfg"
    path.write_text("%s::InputDtype:float32,float32,OutputDtype:float32\n" % name)
    done = Case(call, customize_dtypes=str(path), profile="gpu").agrees(16)
    assert done.dtypes("MatMul") == {HALF, FLOAT}
    assert not done.plan.unmatched


def test_control_inputs_stay_even_those_from_arguments():
    def wait(graph_def):
        [function] = graph_def.library.function
        product, relu = (next(n for n in function.node_def if n.op == op) for op in ("MatMul", "Relu"))
        product.input.append("^" + function.signature.input_arg[0].name)
        relu.input.append("^" + product.name)

    done = Case(call, change=wait).agrees(16)
    [node] = done.calls("PartitionedCall")
    body = done.function(node.attr["f"].func.name).node_def
    waits = {n.op: [text for text in n.input if text[0] == "^"] for n in body}
    assert waits["MatMul"] == ["^a"]
    assert waits["Relu"] == ["^MatMul"]


def test_a_body_that_reads_what_is_not_in_it_is_named():
    def damage(graph_def):
        node = next(n for n in graph_def.library.function[0].node_def if n.op == "MatMul")
        node.input[0] = "nowhere:output:0"

    with pytest.raises(npu_shim.ConfigError, match="reads 'nowhere', which is not in it"):
        Case(call, change=damage)
