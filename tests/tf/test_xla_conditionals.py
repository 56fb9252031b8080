"""tf.cond in a session with XLA: what becomes a functional If, that skipped steps skip, and what stays as it is."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from loss_scale_golden import OVERFLOWS, contrib_cases

from npu_bridge.npu_init import npu_scope
from npu_shim.loss_scale import NPULossScaleOptimizer
from npu_shim.loss_scale.managers.managers import ExponentialUpdateLossScaleManager, ScheduledLossScaleManager
from npu_shim.options.ops.scopes import attributes
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.passes import pipeline
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline
from npu_shim.session.clusters import conditionals, marking
from npu_shim.session.clusters.moves import MUST_COMPILE

AS_WRITTEN = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}
MIXED = {"precision_mode": "allow_mix_precision"}
PLUMBING = {"Const", "Identity", "Switch", "Merge", "VarHandleOp", "ReadVariableOp", "Assign", "VariableV2"}
OVERFLOWING = (2, 3, 5)  # steps
SEEDS = 40 if os.environ.get("NPU_SHIM_NIGHTLY") else 4  # random graphs
ADAM = ("Adam", lambda: tf.train.AdamOptimizer(1e-2))
OPTIMIZERS = [
    ADAM,
    ("Momentum", lambda: tf.train.MomentumOptimizer(1e-2, 0.9)),
    ("RMSProp", lambda: tf.train.RMSPropOptimizer(1e-2, centered=True)),
    ("Ftrl", lambda: tf.train.FtrlOptimizer(1e-1)),
    ("Lamb", lambda: ByHand(1e-2, name="Lamb")),
]

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 has no functional If in XLA")


@pytest.fixture(autouse=True)
def one_kind_of_control_flow():
    tf.disable_control_flow_v2()


class ByHand(tf.train.GradientDescentOptimizer):
    """An optimizer made of small ops, with a trust ratio, as BERT scripts have it."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        ops = [global_step.assign_add(1)]
        for gradient, variable in grads_and_vars:
            moment = tf.get_variable(variable.op.name + "/m", variable.shape, initializer=tf.zeros_initializer())
            after = 0.9 * moment + 0.1 * gradient
            length = tf.norm(variable)
            ratio = tf.where(length > 0.0, length / tf.norm(after), 1.0)
            ops += [moment.assign(after), variable.assign(variable - self._learning_rate * ratio * after)]
        return tf.group(*ops, name=name)


def network(make=ADAM[1], manager=ExponentialUpdateLossScaleManager, resource=True, embedding=False, scope=None):
    """Three layers; what is fed as `x` becomes infinite where it is 1e38. Returns the optimizer."""
    start = tf.glorot_uniform_initializer(seed=2)
    with tf.variable_scope("net", use_resource=resource, initializer=start, auxiliary_name_scope=False):
        x = tf.placeholder(tf.float32, [None, 8], "x")
        h = x
        if embedding:
            h += tf.gather(tf.get_variable("table", [10, 8]), tf.placeholder(tf.int32, [None], "words"))
        for number in range(3):
            h = tf.nn.tanh(tf.matmul(h, tf.get_variable("w%d" % number, [8, 8]))) * (1.0 + tf.reduce_max(tf.abs(x)))
    loss = tf.reduce_mean(tf.square(h), name="loss")
    state = manager(2.0**10, 2, 1, decr_ratio=0.5, use_resource=resource)
    optimizer = NPULossScaleOptimizer(make(), state, on_stuck="ignore")
    step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), use_resource=resource, trainable=False)
    tf.get_variable_scope().set_use_resource(resource)
    with scope() if scope else tf.name_scope(None):
        optimizer.minimize(loss, step, name="train")
    return optimizer


def feeds(step, embedding=False):
    random = np.random.RandomState(step)
    x = random.rand(4, 8).astype(np.float32)
    x[0, 0] = 1e38 if step in OVERFLOWING else x[0, 0]
    return {"x:0": x, "words:0": random.randint(0, 10, 4)} if embedding else {"x:0": x}


def trained(build, xla, options=AS_WRITTEN, steps=8, embedding=False):
    """Losses, variables after every step, and the nodes that ran, of a graph in a session."""
    with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla=xla, **options)) as session:
        build()
        variables = tf.global_variables()
        session.run(tf.global_variables_initializer())
        losses, states = [], []
        for step in range(steps):
            ran = sessions.Ran(session, ["loss:0", "train"], feeds(step, embedding))
            losses.append(ran.values[0])
            states.append(dict(zip([v.op.name for v in variables], session.run(variables))))
    return losses, states, ran.nodes


def same(marked, plain, rtol):
    for (loss, state), (other, others) in zip(zip(*marked[:2]), zip(*plain[:2])):
        np.testing.assert_allclose(loss, other, rtol)
        for name, value in state.items():
            np.testing.assert_allclose(value, others[name], rtol, 1e-5, err_msg=name)


def compiled_calls(nodes):
    return [node for node in nodes if MUST_COMPILE in node.attr]


def arithmetic_outside(nodes):
    """Names of the nodes that compute with floats outside of clusters, but for the report of a stuck scale."""
    floats = [n for n in nodes if any(tf.float32.as_datatype_enum in (a.type, *a.list.type) for a in n.attr.values())]
    inner = ("_XlaCompile", "_XlaRun", "_XlaMerge", "_Arg", "_Retval", "StatefulPartitionedCall")
    return {n.name for n in floats if n.op not in PLUMBING and n.op not in inner and "report_stuck" not in n.name}


@pytest.mark.by_day("Adam", "Ftrl")
@pytest.mark.parametrize(("name", "make"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_a_step_with_a_loss_scale_is_one_cluster_and_one_function(patched, name, make):
    marked = trained(lambda: network(make), "on")
    assert [node.op for node in marked[2]].count("_XlaCompile") == 1
    assert len(compiled_calls(marked[2])) == 1
    assert arithmetic_outside(marked[2]) == set()
    same(marked, trained(lambda: network(make), "off"), 1e-4)


def test_without_xla_nothing_becomes_functional(patched):
    nodes = trained(network, "off", steps=1)[2]
    assert not compiled_calls(nodes)
    assert not {"StatelessIf", "If", "_XlaCompile"} & {node.op for node in nodes}
    assert "ResourceApplyAdam" in {node.op for node in nodes}


@pytest.mark.by_day("float16")
@pytest.mark.parametrize("options", [AS_WRITTEN, MIXED], ids=["float32", "float16"])
def test_skipped_steps_change_nothing_and_the_scale_moves_as_without_xla(patched, options):
    _, states, _ = trained(network, "on", options)
    for step in OVERFLOWING:
        for name, value in states[step].items():
            if name not in ("loss_scale", "good_steps", "bad_steps"):
                np.testing.assert_array_equal(value, states[step - 1][name], err_msg=name)
    assert states[-1]["global_step"] == 8 - len(OVERFLOWING)
    others = trained(network, "off", options)[1]
    for name in ("loss_scale", "good_steps", "bad_steps", "global_step"):
        assert [state[name] for state in states] == [state[name] for state in others]
    assert [state["loss_scale"] for state in states] == [2.0**k for k in (10, 11, 10, 9, 9, 8, 8, 9)]


def test_reference_variables_train_as_ever(patched):
    marked, plain = (trained(lambda: network(resource=False), xla) for xla in ("on", "off"))
    assert not compiled_calls(marked[2])
    same(marked, plain, 1e-4)


def test_sparse_updates_stay_and_the_others_move(patched):
    build = lambda: network(embedding=True)  # noqa: E731
    marked = trained(build, "on", embedding=True)
    (call,) = compiled_calls(marked[2])
    assert {"ResourceScatterAdd", "Unique"} & {node.op for node in marked[2]}
    assert "ResourceApplyAdam" not in {node.op for node in marked[2]}
    assert any("^" + call.name in node.input for node in marked[2])
    same(marked, trained(build, "off", embedding=True), 1e-4)


def test_a_scope_keeps_the_updates_out(patched):
    scope = npu_scope.without_npu_compile_scope
    marked = trained(lambda: network(scope=scope), "on", steps=2)
    assert not compiled_calls(marked[2])
    assert "ResourceApplyAdam" in {node.op for node in marked[2]}
    same(marked, trained(lambda: network(scope=scope), "off", steps=2), 1e-4)


def test_averages_of_applied_steps_come_after_the_step(patched):
    """Two conditionals of one predicate, the second behind the first: two functions, in their order."""

    def build():
        optimizer = network()
        average = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([tf.get_default_graph().get_operation_by_name("train")]):
            kept = optimizer.when_finite(lambda: average.apply(tf.trainable_variables()))
        with tf.control_dependencies([kept]):
            tf.identity(tf.get_default_graph().get_tensor_by_name("loss:0"), "after")

    def run(xla):
        with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla=xla, **AS_WRITTEN)) as session:
            build()
            session.run(tf.global_variables_initializer())
            for step in range(6):
                ran = sessions.Ran(session, "after:0", feeds(step))
            return session.run(tf.moving_average_variables() or tf.global_variables()), ran.nodes

    (values, nodes), (expected, _) = run("on"), run("off")
    assert len(compiled_calls(nodes)) >= 1
    for value, other in zip(values, expected):
        np.testing.assert_allclose(value, other, 1e-4, 1e-5)


def test_golden_traces_with_xla(patched):
    for case in contrib_cases()[:3]:
        with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla="on", **AS_WRITTEN)) as session:
            manager = ScheduledLossScaleManager(case.rule, case.init, use_resource=True)
            optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager, on_stuck="ignore")
            w = tf.get_variable("w", initializer=0.0, use_resource=True)
            global_step = tf.get_variable("global_step", initializer=np.int64(0), use_resource=True, trainable=False)
            gradient = tf.placeholder(tf.float32, [])
            train = optimizer.apply_gradients([(gradient, w)], global_step)
            session.run(tf.global_variables_initializer())
            tensors = dict(manager.variables(), global_step=global_step, w=w)
            for step, symbol in enumerate(("init", *case.symbols)):
                if step:
                    session.run(train, {gradient: OVERFLOWS.get(symbol, 0.5)})
                if step in case.rows:
                    read = session.run([tensors[column] for column in case.columns])
                    assert [float(value) for value in read] == case.rows[step], (case.name, step)


@pytest.mark.parametrize("resource", [True, False])
def test_the_state_is_as_the_scripts_variables(resource):
    with tf.Graph().as_default():
        tf.get_variable_scope().set_use_resource(resource)
        state = ExponentialUpdateLossScaleManager(8.0, 3).variables().values()
        assert {variable.op.type for variable in state} == {"VarHandleOp" if resource else "VariableV2"}
        assert [variable.name for variable in tf.global_variables()] == ["loss_scale:0", "good_steps:0", "bad_steps:0"]


def test_a_conditional_in_a_loop(patched):
    def run(xla):
        with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla=xla, **AS_WRITTEN)) as session:
            tf.get_variable_scope().set_use_resource(True)
            v, m = variable("v"), variable("m")

            def step(i):
                def update():
                    after = m.assign(m * 0.9 + tf.sqrt(tf.square(v) + 1.0) * tf.cast(i, tf.float32), read_value=False)
                    with tf.control_dependencies([after]):
                        return v.assign_sub(0.1 * m / (tf.abs(v) + 1.0), read_value=False)

                with tf.control_dependencies([tf.cond(tf.equal(i % 2, 0), update, tf.no_op)]):
                    return i + 1

            loop = tf.while_loop(lambda i: i < 7, step, [tf.constant(0, tf.int64)], parallel_iterations=1)
            session.run(tf.global_variables_initializer())
            ran = sessions.Ran(session, loop)
            return session.run([v, m]), compiled_calls(ran.nodes)

    (values, calls), (expected, none) = run("on"), run("off")
    assert len(calls) == 1
    assert not none
    np.testing.assert_allclose(values, expected, 1e-6)


def test_xla_has_a_kernel_for_every_op_that_may_move(patched):
    trained(network, "on", steps=1)  # TensorFlow registers XLA's kernels when it first forms clusters
    registered = tf_internals.kernels.__wrapped__()
    compiled = {op for op, kernels in registered.items() if any("_JIT" in kernel.device_type for kernel in kernels)}
    assert conditionals.OPS - compiled == set()


def test_checkpoints_of_both_kinds_are_the_same(tmp_path):
    names = []
    for kind, other in ((True, False), (False, True)):
        path = str(tmp_path / str(kind))
        with tf.Graph().as_default(), tf.Session() as session:
            ExponentialUpdateLossScaleManager(64.0, 3, use_resource=kind)
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, path)
            names.append(tf.train.list_variables(path))
        with tf.Graph().as_default(), tf.Session() as session:
            manager = ExponentialUpdateLossScaleManager(2.0, 3, use_resource=other)
            tf.train.Saver().restore(session, path)
            assert session.run(manager.get_loss_scale()) == 64.0
    assert names[0] == names[1] == [("bad_steps", []), ("good_steps", []), ("loss_scale", [])]


class Random:
    """Conditionals of two predicates, one behind the other, that write to variables; some ops stay out of XLA."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.predicates = [tf.placeholder(tf.bool, [], name) for name in "pq"]
        self.variables = [tf.get_variable("v%d" % k, initializer=np.float32([k, 1.0])) for k in range(3)]
        last, value = tf.no_op(), tf.constant([0.5, -0.5])
        for number in range(self.random.randint(2, 6)):
            predicate = self.predicates[self.random.randint(2)]
            with tf.control_dependencies([last]):
                last = tf.cond(predicate, self.side(value), self.side(value), name="cond%d" % number)
            if self.random.rand() < 0.5:
                with tf.control_dependencies([last]):
                    value = tf.tanh(self.pick().read_value())  # the next one starts from outside of this one
        self.last = last.op

    def side(self, value, depth=0):
        """A function that builds a branch; all choices are made before, since tf.cond may call it where it likes."""
        plan = [(self.random.rand(), self.random.randint(3), self.random.randint(3)) for _ in range(3)]
        inner = self.side(value, 1) if depth == 0 and self.random.rand() < 0.3 else None
        predicate = self.predicates[self.random.randint(2)]

        def build():
            last = tf.no_op()
            for kind, target, source in plan[: int(4 * plan[0][0])]:
                with tf.control_dependencies([last]):
                    after = self.variables[source].read_value() * 0.5 + value
                    if kind < 0.2:
                        after = tf.cast(tf.unique(tf.cast(after * 0, tf.int32)).y[0], tf.float32) + after  # no OPS
                    target = self.variables[target]
                    write = target.assign if kind < 0.6 else target.assign_add if kind < 0.8 else target.assign_sub
                    last = write(after, read_value=False)
            if inner is not None:
                with tf.control_dependencies([last]):
                    last = tf.cond(predicate, inner, tf.no_op).op
            return tf.group(last)

        return build

    def pick(self):
        return self.variables[self.random.randint(3)]


def test_random_conditionals_are_what_they_are_without_xla(patched, monkeypatch):
    monkeypatch.setattr(marking, "MINIMUM_OPS", 1)

    def run(seed, xla):
        with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla=xla, **AS_WRITTEN)) as session:
            tf.get_variable_scope().set_use_resource(True)
            graph = Random(seed)
            session.run(tf.global_variables_initializer())
            states, calls = [], 0
            for p, q in ((True, True), (True, False), (False, False), (False, True)):
                ran = sessions.Ran(session, graph.last, dict(zip(graph.predicates, (p, q))))
                calls += len(compiled_calls(ran.nodes))
                states.append(session.run(graph.variables))
            return states, calls

    functions = 0
    for seed in range(SEEDS):
        (states, calls), (expected, _) = run(seed, "on"), run(seed, "off")
        np.testing.assert_allclose(states, expected, 1e-5, 1e-6, err_msg="seed %d" % seed)
        functions += calls > 0
    assert functions > SEEDS / 2


def functional(build, keep=()):
    """What the op that `build(predicate)` returns needs, with functional conditionals, and before."""
    with tf.Graph().as_default() as graph:
        output = build(tf.placeholder(tf.bool, [], "p"))
    before = tf.graph_util.extract_sub_graph(graph.as_graph_def(), [output.op.name])
    module = graphdef.read(before)
    step = Pass(
        "all", lambda module, keep: conditionals.to_functional(module, keep, lambda node: False, 1), "", repeats=True
    )
    pipeline.run(Pipeline("tests", "makes conditionals functional", (step,)), module, [output.op.name, *keep])
    return graphdef.write(module), before


def variable(name="v"):
    return tf.get_variable(name, [2], initializer=tf.zeros_initializer(), use_resource=True)


def add_or_nothing(p):
    v = variable()
    return tf.cond(p, lambda: v.assign_add([1.0, 1.0], read_value=False), tf.no_op)


def test_updates_of_both_sides_become_one_call():
    def build(p):
        v = variable()
        return tf.cond(p, lambda: v.assign_add([1.0, 1.0]).op, lambda: v.assign_sub([2.0, 2.0]).op)

    graph_def, _ = functional(build)
    (call,) = compiled_calls(graph_def.node)
    bodies = {function.signature.name: function for function in graph_def.library.function}
    (inner,) = bodies[call.attr["f"].func.name].node_def
    sides = [[n.op for n in bodies[inner.attr[side].func.name].node_def] for side in ("then_branch", "else_branch")]
    assert "AssignAddVariableOp" in sides[0]
    assert "AssignSubVariableOp" in sides[1]
    assert not {"AssignAddVariableOp", "AssignSubVariableOp"} & {node.op for node in graph_def.node}


def test_values_become_an_if_where_the_shapes_are_said_to_be_equal():
    def build(p):
        with attributes(**{conditionals.EQUAL_SHAPES: True}):
            x = tf.placeholder(tf.float32, [2], "x")
            return tf.cond(p, lambda: tf.exp(x), lambda: x, name="c")

    graph_def, _ = functional(build)
    ops = {node.name: node.op for node in graph_def.node}
    assert ops["c/Merge"] == "Identity"
    assert "StatelessIf" in ops.values()
    assert not {"Switch", "Merge", "Exp"} & set(ops.values())
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        for p, expected in ((True, [1.0, 1.0]), (False, [0.0, 0.0])):
            assert session.run("c/Merge:0", {"p:0": p, "x:0": np.zeros(2)}).tolist() == expected


def test_equal_graphs_give_equal_bytes():
    first, second = (functional(add_or_nothing)[0].SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def first_value(p):
    v = variable()
    return tf.cond(p, tf.no_op, lambda: v.assign([1.0, 1.0], read_value=False))


def nested(p):
    v, q = variable(), tf.placeholder(tf.bool, [], "q")
    return tf.cond(p, lambda: tf.cond(q, lambda: v.assign_add([1.0, 1.0], read_value=False), tf.no_op), tf.no_op)


def host_op(p):
    v = variable()
    ones = lambda: tf.py_func(lambda: np.ones(2, np.float32), [], tf.float32)  # noqa: E731
    return tf.cond(p, lambda: v.assign_add(ones(), read_value=False), tf.no_op)


def values_of_unknown_shapes(p):
    x = tf.placeholder(tf.float32, None, "x")
    return tf.cond(p, lambda: tf.reduce_sum(x), lambda: x)


@pytest.mark.parametrize("build", [first_value, nested, host_op, values_of_unknown_shapes])
def test_what_stays_as_it_is(build):
    after, before = functional(build)
    assert after is before


def test_what_is_fetched_stays():
    after, before = functional(add_or_nothing)
    assert after is not before
    (name,) = [node.name for node in before.node if node.op == "AssignAddVariableOp"]
    kept, again = functional(add_or_nothing, [name])
    assert kept is again


def test_small_conditionals_make_no_function(patched):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla="on", **AS_WRITTEN)) as session:
        p = tf.placeholder(tf.bool, [])
        step = add_or_nothing(p)
        session.run(tf.global_variables_initializer())
        assert not compiled_calls(sessions.Ran(session, step, {p: True}).nodes)
        session.run(step, {p: False})
        assert session.run(sessions.named("v:0")).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("fed", ["rate", "copy", "finite"])
def test_what_is_fed_within_a_step_is_what_the_updates_see(patched, fed):
    """Of a constant that is fed the constant's own value went into the function, and of a predicate what it reads."""

    def steps(xla):
        with tf.Graph().as_default(), tf.Session(config=sessions.config(npu_shim_xla=xla, **AS_WRITTEN)) as session:
            copy = tf.identity(tf.constant(0.5, name="rate"), "copy")
            x = tf.placeholder(tf.float32, [4])
            finite = tf.identity(tf.reduce_all(tf.is_finite(x)), "finite")
            with tf.variable_scope("v", use_resource=True):
                variables = [tf.get_variable("v%d" % k, [4], initializer=tf.ones_initializer()) for k in range(3)]
            optimizer = tf.train.MomentumOptimizer(copy, 0.5)
            gradients = [(x * (k + 1.0), variable) for k, variable in enumerate(variables)]
            tf.cond(finite, lambda: optimizer.apply_gradients(gradients), tf.no_op, name="decides")
            update = tf.get_default_graph().get_operation_by_name("decides/Merge")
            session.run(tf.global_variables_initializer())
            values = []
            for value in ({}, {fed + ":0": False if fed == "finite" else 4.0}, {}):
                ran = sessions.Ran(session, update.outputs[0], {x: np.ones(4), **value})
                values.append((session.run(variables), len(compiled_calls(ran.nodes))))
        return [value for value, _ in values], sum(count for _, count in values)

    plain, _ = steps("off")
    compiled, count = steps("on")
    assert count
    np.testing.assert_array_equal(compiled, plain)
