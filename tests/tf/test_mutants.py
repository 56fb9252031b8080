"""What verifies a rewrite refuses every graph with one fault, and no right one; mutants.py draws them."""

import functools
import os
from dataclasses import replace

import mutants
import pytest
import random_graphs
import reference_material
import session_passes
import sessions
import tensorflow.compat.v1 as tf

import graphs
import npu_shim
from npu_shim import loss_scale
from npu_shim.distributed.collectives import call_fusion, keys
from npu_shim.rewriter import rewrite, tf_internals
from npu_shim.rewriter.errors import VerifyError
from npu_shim.rewriter.ir import graphdef
from npu_shim.session.clusters import conditionals, marking
from npu_shim.session.observers import measures
from npu_shim.session.passes import arrivals, channels, kernel_names, onednn, rounding

OLD = tf.__version__.startswith("1.")
TIMES = 5 if os.environ.get("NPU_SHIM_NIGHTLY") else 1
PROGRAMS = {
    "calls": ("matmul", ("call", 2, ["matmul", "tanh"]), ("call", 1, ["softmax", "matmul"])),
    "branches": ("matmul", ("cond", True, ["matmul", "bias"], ["tanh", "product"])),
    "loop": (("while", 3, ["matmul", "tanh"]), "matmul"),
    "nested": (("while", 2, [("cond", True, ["matmul"], ["exp"]), ("call", 1, ["matmul", "split"])]),),
    "array": (("array", 2, ["matmul", "tanh"]), "softmax"),
    "cases": (("case", 1, ["matmul", "exp"], ["bias"]), "matmul"),
}


def reference(name):
    """A training graph with what is fetched of it and fed."""
    about = reference_material.about(name)
    return reference_material.training_graph(name), [about["loss"], about["train_op"]], list(about["feeds"])


def program(name, version):
    """A random program's graph, as `reference`."""
    variable = not OLD  # whose gradients in a loop of version 2 are an error of TensorFlow 1.15's
    built = random_graphs.build(random_graphs.Program(PROGRAMS[name], version, True, variable))
    return built.graph_def, [*built.fetches, built.init], []


GRAPHS = {name: (reference, name) for name in ("bert_tiny_train", "lstm_lm_train", "resnet50_ref_train")}
GRAPHS.update(("%s of version %d" % (name, v), (program, name, v)) for name in PROGRAMS for v in (1, 2))
ASKED = (
    {"precision_mode": "allow_mix_precision", "device": "CPU" if OLD else "XLA"},
    {"precision_mode": "allow_fp32_to_fp16"},
    {"precision_mode": "allow_mix_precision_bf16"},
)


class Checked:
    """The promises of a rewrite, with what they were given: asked again, they take a mutant in place of the result."""

    def __init__(self, monkeypatch):
        self.seen = []
        steps = [replace(step, promise=step.promise and self._kept(step.promise)) for step in rewrite.PRECISION.passes]
        monkeypatch.setattr(rewrite, "PRECISION", replace(rewrite.PRECISION, passes=tuple(steps)))

    def _kept(self, promise):
        def check(before, after, work):
            broken = list(promise.violations(before, after, work))
            if broken:
                raise VerifyError(broken)

        def violations(before, after, work):
            copies = [tf.GraphDef.FromString(graph_def.SerializeToString()) for graph_def in (before, after)]
            self.seen.append((check, 1, [*copies, work]))  # the result is sorted in place afterwards
            return promise.violations(before, after, work)

        return replace(promise, violations=violations)


def refused(check, number, arguments, rng, count):
    """Draws mutants of a result and has each refused; returns what was done to those that were not."""
    taken = []
    for _ in range(count):
        what, mutant = mutants.drawn(arguments[number], rng)
        try:
            check(*arguments[:number], mutant, *arguments[number + 1 :])
            taken.append(what)
        except VerifyError:
            pass
    return taken


@pytest.mark.parametrize("name", GRAPHS)
def test_every_mutant_of_a_rewritten_graph_is_refused(name, monkeypatch):
    checked, (make, *arguments) = Checked(monkeypatch), GRAPHS[name]
    graph_def, fetches, feeds = make(*arguments)
    for options in ASKED[: 1 if TIMES == 1 else 3]:
        npu_shim.rewrite(graph_def, fetches, feeds, **options)
    assert checked.seen
    rng = mutants.seeded(name)
    for check, number, given in checked.seen:
        check(*given)  # what is right passes
        assert refused(check, number, given, rng, 8 * TIMES) == []


def test_a_zero_that_changes_its_sign_is_refused(monkeypatch):
    """0.0 equals -0.0, and 1 / 0.0 does not: nodes are compared by their bytes."""
    checked = Checked(monkeypatch)
    with tf.Graph().as_default() as graph:
        x, dense = tf.placeholder(tf.float32, [2, 4], "x"), tf.zeros([4, 4])
        ceil = tf.Variable([0.0, 2.0], use_resource=True).read_value() / tf.constant(0.0, name="zero")
        fetched = [tf.matmul(x, dense + 1.0).name, ceil.name]
    npu_shim.rewrite(graph.as_graph_def(), fetched, ["x:0"], precision_mode="allow_fp32_to_fp16")
    for check, number, given in checked.seen:
        zero = next(node for node in given[number].node if node.name == "zero")
        zero.attr["value"].tensor.float_val[:] = [-0.0]
        with pytest.raises(VerifyError, match=r"'zero' .*has changed in attribute value"):
            check(*given)
    assert checked.seen


def test_what_no_node_has_is_compared_too(monkeypatch):
    """A GraphDef has more than nodes: versions, functions and what another TensorFlow may add."""
    checked = Checked(monkeypatch)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 4], "x")
        fetched = tf.matmul(x, tf.ones([4, 4])).name
    npu_shim.rewrite(graph.as_graph_def(), [fetched], ["x:0"], precision_mode="allow_fp32_to_fp16")
    for check, number, given in checked.seen:
        given[number].version = 7  # the field that `versions` replaced
        with pytest.raises(VerifyError, match="the graph has changed outside of its nodes"):
            check(*given)
    assert checked.seen


@functools.lru_cache(maxsize=None)
def lowered(name):
    """A rewritten training graph of the reference, for a CPU."""
    graph_def, fetches, feeds = reference(name)
    return npu_shim.rewrite(graph_def, fetches, feeds, precision_mode="allow_fp32_to_fp16")[0], [*fetches, *feeds]


def of_rounding():
    graph_def, keep = lowered("lstm_lm_train")
    return graph_def, graphs.after(rounding.fuse_casts, graph_def, keep), keep


def of_clusters():
    graph_def, keep = lowered("resnet50_ref_train")
    return graph_def, graphs.after(marking.mark, graph_def), keep


def built(make):
    """(GraphDef, names of the tensors that `make` gives)."""
    with tf.Graph().as_default() as graph:
        keep = [tensor.name for tensor in make()]
    return graph.as_graph_def(), keep


def of_measures():
    def make():
        limits, x = measures.limits(), tf.placeholder(tf.float32, [4], "x")
        return [tf.identity(measures.of(value, limits)) for value in (tf.exp(x), tf.tanh(x), x * 2.0)]

    graph_def, keep = built(make)
    return graph_def, graphs.after(measures.fuse, graph_def, keep), keep


def collectives():
    tensors = []
    for number in range(4):
        with tf.control_dependencies(tensors[:1] if number == 3 else []):
            summed = tf.raw_ops.CollectiveReduce(
                input=tf.exp(tf.placeholder(tf.float32, [3, 2])), group_size=2, group_key=1,
                instance_key=keys.instance("summed%d" % number, 0), merge_op="Add", final_op="Id", subdiv_offsets=[0],
            )  # fmt: skip
        call_fusion.mark(summed, 1, 0)
        tensors.append(tf.identity(summed))
    return tensors


def of_call_fusion():
    graph_def, keep = built(collectives)
    return graph_def, graphs.after(call_fusion.fuse, graph_def), keep


def of_arrivals():
    graph_def, keep = built(collectives)
    return graph_def, graphs.after(arrivals.mark, graph_def), keep


def pools():
    x = tf.placeholder(tf.float32, [2, 4, 8, 8])
    y = tf.nn.max_pool2d(tf.tanh(x), [1, 1, 2, 4], [1, 1, 2, 1], "SAME", "NCHW")
    z = tf.nn.avg_pool2d(y, [1, 1, 3, 2], [1, 1, 1, 2], "SAME", "NCHW")
    w = tf.get_variable("w", [3, 3, 4, 4], use_resource=True)
    return [z, *tf.gradients(tf.nn.conv2d(z, w, 1, "SAME", data_format="NCHW", dilations=[1, 1, 2, 1]), [x, w])]


def of_channels():
    graph_def, keep = built(pools)
    return graph_def, graphs.after(channels.to_channels_last, graph_def), keep


def of_onednn():
    before, keep = of_channels()[1:]
    return before, graphs.after(onednn.name_kernels, before), keep


OF_PASSES = {
    "rounding": of_rounding, "clusters": of_clusters, "measures": of_measures, "call fusion": of_call_fusion,
    "arrivals": of_arrivals, "channels": of_channels, "oneDNN": of_onednn,
}  # fmt: skip


def test_every_pass_is_drawn_from():
    assert {*OF_PASSES, "kernel names", "conditionals"} == set(session_passes.PASSES)


def kept(*given, **named):
    """Raises VerifyError where `session_passes.broken` has something to tell."""
    violations = session_passes.broken(*given, **named)
    if violations:
        raise VerifyError(violations)


@pytest.mark.parametrize("name", OF_PASSES)
def test_every_mutant_of_what_a_pass_gives_is_refused(name, monkeypatch):
    if name == "oneDNN" and OLD:
        pytest.skip("the wheels of TensorFlow 1.15 have no kernels of oneDNN")
    monkeypatch.setattr(tf_internals, "onednn_is_on", lambda: False)
    before, after, keep = OF_PASSES[name]()
    assert after is not before
    written = before.SerializeToString(deterministic=True)
    kept(name, before, after, keep)
    assert before.SerializeToString(deterministic=True) == written

    def check(mutant):
        kept(name, before, mutant, keep)

    assert refused(lambda *given: check(given[0]), 0, [after], mutants.seeded(name), 8 * TIMES) == []


def conversions():
    """(GraphDef before, after) of each conditional of a step that is skipped where it overflows, and what is kept."""
    with tf.Graph().as_default() as graph, sessions.control_flow(1):
        x = tf.placeholder(tf.float32, [4, 8], "x")
        w = tf.get_variable("w", [8, 8], use_resource=True)
        step = tf.get_variable("step", [], tf.int64, tf.zeros_initializer(), use_resource=True, trainable=False)
        manager = loss_scale.ExponentialUpdateLossScaleManager(8.0, 2, 1, decr_ratio=0.5, use_resource=True)
        scaled = loss_scale.LossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager)
        train = scaled.minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))), step)
    seen, keep = [], [train.name, "x"]
    module = graphdef.read(graph.as_graph_def())
    stays_out = marking.outside(module)
    while True:
        before = graphdef.write(module)
        conditionals.to_functional(module, keep, stays_out, marking.MINIMUM_OPS)
        if graphdef.write(module) is before:
            return seen, keep
        seen.append((before, graphdef.write(module)))


@pytest.mark.skipif(OLD, reason="TensorFlow 1.15 has no functional If in XLA")
def test_every_mutant_of_a_conversion_is_refused():
    pairs, keep = conversions()
    added = [{node.op for node in after.node} - {node.op for node in pairs[0][0].node} for _, after in pairs]
    assert set().union(*added) == {"StatelessIf", "StatefulPartitionedCall"}
    for number, (before, after) in enumerate(pairs):
        kept("conditionals", before, after, keep)

        def check(mutant, before=before):
            kept("conditionals", before, mutant, keep)

        assert refused(lambda *given: check(given[0]), 0, [after], mutants.seeded(number), 60 * TIMES) == []


@pytest.mark.skipif(OLD, reason="TensorFlow 1.15 has no functional If in XLA")
def test_a_conversion_that_takes_along_what_is_fed_is_refused():
    pairs, keep = conversions()
    for before, after in pairs:
        new = list(after.library.function)[len(before.library.function) :]
        taken = {node.name for function in new for node in function.node_def if node.name != "if"}
        for name in sorted(taken):
            with pytest.raises(VerifyError, match="'%s'" % name):
                kept("conditionals", before, after, [*keep, name])


def test_every_mutant_of_renamed_kernels_is_refused():
    def make():
        noise = tf.random.normal([4])
        with tf.control_dependencies([noise]):
            return [tf.exp(noise), tf.random.uniform([3]) * 2.0]

    given, keep = built(make)
    before = tf.GraphDef()
    before.CopyFrom(given)
    for node in before.node:
        if "Random" in node.op:
            node.attr["dtype"].type = tf.float16.as_datatype_enum
    moved = kernel_names.distinct(given, before)
    renamed = graphs.after(kernel_names.rename, before, moved, [*keep, "random_uniform/RandomUniform"])
    assert len(moved) == 2

    def check(mutant):
        kept("kernel names", before, mutant, keep, moved)

    check(renamed)
    assert refused(lambda *given: check(given[0]), 0, [renamed], mutants.seeded(0), 8 * TIMES) == []
