"""Profile grappler against the pass that it follows, node by node and cast by cast, on this TensorFlow's own pass.

Random graphs are few and always the same; NPU_SHIM_FUZZ=N searches N of them at random, and hypothesis prints the seed
of a failure.
"""

import os
import random
import re

import grappler_graphs
import grappler_oracle as oracle
import pytest
import random_graphs
import reference_material
import tensorflow.compat.v1 as tf
from grappler_suite import version_1_graph
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import npu_shim
from npu_shim.options import precision
from npu_shim.options.ops import kernel_tables
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.graphdef import registry
from npu_shim.rewriter.planner import report
from npu_shim.rewriter.planner.decisions import Reason

COUNT = int(os.environ.get("NPU_SHIM_FUZZ") or (500 if os.environ.get("NPU_SHIM_NIGHTLY") else 0))


def fuzz(few):
    """Runs a test on so many graphs, or on those that are asked for."""
    return settings(
        max_examples=COUNT or few,
        derandomize=not COUNT,
        print_blob=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


AFTERWARDS = re.compile("_tfg_inlined_.*")
# where TensorFlow 2.15 builds no gradients
NO_GRADIENT = ("not supported", "is not compatible with")


@pytest.fixture(autouse=True)
def profile(monkeypatch):
    """The profile of this TensorFlow's pass, which knows the kernels of its own wheel only."""
    monkeypatch.setattr(kernel_tables, "_shipped_gpu_or_own", registry.registered_kernels)
    kernel_tables.of.cache_clear()
    yield oracle.profile()
    kernel_tables.of.cache_clear()


def rewritten(graph_def, fetches, device="GPU"):
    return npu_shim.rewrite(graph_def, fetches, device=device, profile=oracle.profile())


def drawn(steps, places, fetched):
    """A random graph and its fetches; what TensorFlow cannot build is passed over."""
    try:
        with version_1_graph():
            return grappler_graphs.build(steps, places, fetched)
    except (TypeError, LookupError) as reason:
        assume(not any(text in str(reason) for text in NO_GRADIENT))
        raise


def same(graph_def, fetches, device="GPU"):
    """Asserts that both make the same of a graph, twice: nothing is left to do for a second rewrite."""
    ours, plan = rewritten(graph_def, fetches, device)
    theirs = oracle.optimized(graph_def, fetches, device)
    assert oracle.difference(graph_def, ours, theirs) == []
    assert oracle.casts(ours, graph_def) == oracle.casts(theirs, graph_def)
    assert rewritten(ours, fetches, device)[0] is ours
    return plan


@fuzz(12)
@given(grappler_graphs.STEPS, grappler_graphs.PLACES, st.lists(grappler_graphs.NUMBERS, max_size=3))
def test_random_graphs_on_a_gpu(steps, places, fetched):
    same(*drawn(steps, places, fetched))


@fuzz(5)
@given(grappler_graphs.STEPS, grappler_graphs.PLACES, st.lists(grappler_graphs.NUMBERS, max_size=3))
def test_random_graphs_on_a_cpu(steps, places, fetched):
    if oracle.profile() != "grappler":
        pytest.skip("TensorFlow 1.15's pass is for GPUs only")
    same(*drawn(steps, places, fetched), device="CPU")


@fuzz(5)
@given(grappler_graphs.STEPS, grappler_graphs.PLACES, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_matter(steps, places, rng):
    """Neither to us nor, in this mode, to the pass."""
    graph_def, fetches = drawn(steps, places, [])
    shuffled = tf.GraphDef()
    shuffled.CopyFrom(graph_def)
    del shuffled.node[:]
    shuffled.node.extend(rng.sample(list(graph_def.node), len(graph_def.node)))
    one, plan = rewritten(graph_def, fetches)
    other, other_plan = rewritten(shuffled, fetches)
    assert report.as_json(plan) == report.as_json(other_plan)
    if plan.changed:
        assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


@pytest.mark.by_day("bert_tiny_train", "crnn_ctc_train", "lstm_lm_train", "resnet50_train")
@pytest.mark.parametrize(
    "name",
    ["bert_large_train", "bert_tiny_train", "crnn_ctc_train", "lstm_lm_train", "resnet50_ref_train", "resnet50_train"],
)
def test_training_graphs(name):
    about = reference_material.about(name)
    plan = same(reference_material.training_graph(name), [about["loss"], about["train_op"]])
    decided = {(d.node, d.slot): d for d in plan.decisions()}
    for decision in decided.values():  # every chain of reasons ends, and not in a circle
        seen = set()
        while decision.because is not None:
            assert decision.because not in seen, decision
            seen.add(decision.because)
            decision = decided[decision.because]
    baseline = reference_material.table("graphs/grappler_casts")
    if kernel_tables.has_gpu_kernels():
        [row] = [row for row in baseline if row["graph"] == name and row["tensorflow"] == tf.__version__]
        counted = (row["casts_to_low"], row["casts_to_float32"])
        assert tuple(sum(c.dtype == d for c in plan.casts) for d in (19, 1)) == counted


def test_the_lists_are_those_of_the_pass(tmp_path):
    """With LOG_PATH set, the pass writes down the lists that it uses."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4])
        end = tf.identity(tf.matmul(x, x))
    oracle.optimized(graph.as_graph_def(), [end.name], environment={"LOG_PATH": str(tmp_path)})
    [path] = tmp_path.glob("*paintbuckets*")
    theirs, ops = {}, []
    for line in path.read_text().splitlines():
        if line.endswith(":"):
            ops = theirs.setdefault(line[:-1].lower().replace("list", ""), [])
        elif line:
            ops.append(line)
    theirs = {oracle.LIST_NAMES[key]: sorted(ops) for key, ops in theirs.items()}
    ours = {listed: [] for listed in theirs}
    for op, entry in precision.profile_table(oracle.profile()).entries.items():
        ours["clear" if entry.role == "moves" else entry.listed].append(op)
    assert {listed: sorted(ops) for listed, ops in ours.items()} == theirs


def test_a_long_tensor_list_has_no_more_edges_than_ops():
    """The pass joins every writer to every reader, and looks for the same list from each of its ops."""
    if oracle.profile() != "grappler":
        pytest.skip("the lists of 1.15 have no TensorLists")
    from npu_shim.rewriter.planner.grappler import containers as grappler_containers
    from npu_shim.rewriter.planner.grappler import graph as grappler_graph
    from npu_shim.rewriter.planner.overrides import NO_OVERRIDES

    def edges(length):
        raw = tf.raw_ops
        element = {"element_shape": [4, 4], "element_dtype": tf.float32}
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [4, 4])
            handle = raw.TensorListReserve(element_shape=[4, 4], num_elements=length, element_dtype=tf.float32)
            for index in range(length):
                handle = raw.TensorListSetItem(input_handle=handle, index=index, item=x)
            for index in range(length):
                raw.TensorListGetItem(input_handle=handle, index=index, **element)
        view = graphs.read(graph.as_graph_def())
        marks = grappler_graph.mark_nodes(
            view, precision.profile_table("grappler"), kernel_tables.of("GPU"), NO_OVERRIDES
        )
        return len(grappler_containers.find_containers(view, marks).edges)

    assert edges(64) - edges(32) == edges(32) - edges(0)


def test_random_graphs_are_not_all_alike():
    """The draws do reach what they are for: lists, loops, both kinds of variables, every colour."""
    names = set(grappler_graphs.NAMES)
    entries = precision.profile_table("grappler").entries
    colours = {"clear" if entries[op].role == "moves" else entries[op].listed for op in names if op in entries}
    assert colours == {"white", "gray", "black", "clear"}
    rng = random.Random(0)
    steps = [(name, rng.randrange(64), rng.randrange(64), ()) for name in sorted(names)]
    steps.append(("while", 0, 1, (("MatMul", 0, 1, ()),)))
    _, plan = rewritten(*drawn(steps, [""], []))
    reasons = {decision.reason.name for decision in plan.decisions()}
    assert {"WHITE", "BLACK", "DENIED", "BETWEEN", "BESIDE", "UNLISTED"} <= reasons


def bodies(graph_def):
    """The functions that the graph's calls name: {call: [{node: its type attributes}]}."""
    library = {function.signature.name: function for function in graph_def.library.function}

    def described(name):  # what runs behind the pass in TensorFlow's optimizer adds to names
        nodes = ((AFTERWARDS.sub("", node.name), node.attr) for node in library[name].node_def)
        return {name: sorted((key, attr[key].type) for key in attr if attr[key].type) for name, attr in nodes}

    called = {}
    for node in graph_def.node:
        attrs = [node.attr[key] for key in ("f", "cond", "body", "then_branch", "else_branch") if key in node.attr]
        if attrs:
            called[node.name] = [described(attr.func.name) for attr in attrs]
    return called


def differing_bodies(graph_def, ours, theirs):
    """(call, number of its function, node) for what the functions that the graph itself calls have differently."""
    written, our_bodies, their_bodies = bodies(graph_def), bodies(ours), bodies(theirs)
    return [
        (call, k, name)
        for call in written
        for k, body in enumerate(written[call])
        for name in body
        if our_bodies[call][k][name] != their_bodies[call][k][name]
    ]


@fuzz(4)
@given(random_graphs.PROGRAMS)
def test_random_programs_with_functions(program):
    """Bodies as well; what runs behind the pass may order the values differently that a branch takes."""
    if oracle.profile() != "grappler":
        pytest.skip("TensorFlow 1.15 has no such functions")
    built = random_graphs.build(program)
    fetches = [*built.fetches, built.init]
    ours, plan = rewritten(built.graph_def, fetches)
    assume(not any(decision.reason is Reason.SCOPE for decision in plan.decisions()))
    theirs = oracle.optimized(built.graph_def, fetches)
    assert [line for line in oracle.difference(built.graph_def, ours, theirs) if "If'" not in line] == []
    assert differing_bodies(built.graph_def, ours, theirs) == []
    assert rewritten(ours, fetches)[0] is ours


def test_functions_are_rewritten_by_themselves(control_flow_of_version_2):
    """A call, a branch and a loop of version 2: float32 goes in and out, and what lies between is as in the pass."""
    if oracle.profile() != "grappler":
        pytest.skip("TensorFlow 1.15 has no such functions")

    @tf.function
    def called(a, b):
        return tf.exp(tf.matmul(tf.nn.relu(tf.matmul(a, b)), b)), tf.nn.relu(a)

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4])
        y = tf.matmul(*called(tf.matmul(x, x), x))
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(y, y), lambda: tf.tanh(y))
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.nn.relu(tf.matmul(y, x))), [tf.constant(0), y])[1]
        fetches = [tf.identity(tf.matmul(y, y)).name]
    graph_def = graph.as_graph_def()
    ours, plan = rewritten(graph_def, fetches)
    theirs = oracle.optimized(graph_def, fetches)
    assert oracle.difference(graph_def, ours, theirs) == []
    assert len(bodies(graph_def)) == 3
    assert differing_bodies(graph_def, ours, theirs) == []
    assert {d.reason.name for d in plan.decisions()} >= {"BORDER", "WHITE", "BETWEEN"}
