"""The rewriter on real training graphs: BERT, ResNet-50 with resource and reference variables, LSTM, CRNN with CTC."""

import functools
import random

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.planner import report
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.tables.dtypes import FLOAT16, FLOATS

HEAVY = {
    "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul", "BatchMatMul", "BatchMatMulV2"
}  # fmt: skip
NAMES = ["bert_large_train", "bert_tiny_train", "crnn_ctc_train", "lstm_lm_train", "resnet50_ref_train",
"resnet50_train"]


class Real:
    """A graph of the reference material with its description."""

    def __init__(self, name):
        self.name, self.about = name, reference_material.about(name)
        self.graph_def = reference_material.training_graph(name)
        self.fetches = [self.about["loss"], self.about["train_op"]]
        self.feeds = list(self.about["feeds"])
        self.fed = reference_material.feeds(name)

    def rewritten(self, **options):
        return npu_shim.rewrite(self.graph_def, self.fetches, self.feeds, **options)

    def seeded(self):
        """The graph with fixed seeds, so that two runs start from the same weights and drop the same units."""
        for number, node in enumerate(self.graph_def.node):
            if "seed2" in node.attr:
                node.attr["seed"].i, node.attr["seed2"].i = 1, number + 1
        return self

    def losses(self, config, steps=3):
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            tf.import_graph_def(self.graph_def, name="")
            session.run(self.about["init"])
            return [float(session.run(self.fetches, self.fed)[0]) for _ in range(steps)]


@pytest.fixture(params=NAMES)
def real(request):
    return Real(request.param)


@pytest.fixture(params=[
    pytest.param(name, marks=pytest.mark.nightly) if name in ("bert_large_train", "resnet50_ref_train") else name
    for name in NAMES
])  # fmt: skip
def small(request):
    """A graph that several plans are made of: BERT-large has no op that BERT-tiny has not."""
    return Real(request.param)


MIX = {"precision_mode": "allow_mix_precision", "device": "GPU"}
lowers = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 has no GPU kernels to plan for")


@functools.lru_cache(maxsize=None)
def mixed(name):
    """(GraphDef, Plan) of a graph in mixed precision, not to be changed."""
    return Real(name).rewritten(**MIX)


@pytest.mark.by_day("resnet50_train", "bert_tiny_train", "crnn_ctc_train", "lstm_lm_train")
@lowers
def test_every_matrix_and_convolution_op_is_lowered(real):
    rewritten, _ = mixed(real.name)
    heavy = [node for node in rewritten.node if node.op in HEAVY]
    assert len(heavy) == sum(node.op in HEAVY for node in real.graph_def.node) > 0
    assert {node.attr["T"].type for node in heavy} == {FLOAT16}


def test_the_plan_is_total_with_reasons_and_idempotent(real):
    rewritten, plan = mixed(real.name)
    decided = {(d.node, d.slot): d for d in plan.decisions()}
    expected = sum(dtype in FLOATS for node in plan.view.nodes for dtype in node.dtypes)
    assert len(decided) == expected
    for decision in decided.values():
        assert decision.because is None or decision.because in decided
    again, second = npu_shim.rewrite(rewritten, real.fetches, real.feeds, **MIX)
    assert again is rewritten
    assert not second.changed


@lowers
def test_the_order_of_the_nodes_does_not_matter(small):
    shuffled = tf.GraphDef()
    shuffled.CopyFrom(small.graph_def)
    nodes = list(small.graph_def.node)
    random.Random(0).shuffle(nodes)
    del shuffled.node[:]
    shuffled.node.extend(nodes)
    before = small.graph_def.SerializeToString(deterministic=True)
    one, plan = small.rewritten(**MIX)
    other, other_plan = npu_shim.rewrite(shuffled, small.fetches, small.feeds, **MIX)
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)
    same = report.as_json(plan) == report.as_json(other_plan)
    assert same  # pytest would take minutes to show the difference of two such plans
    assert small.graph_def.SerializeToString(deterministic=True) == before


@pytest.mark.by_day("resnet50_train", "crnn_ctc_train", "bert_tiny_train")
def test_the_rewritten_graph_imports(real):
    rewritten, _ = mixed(real.name)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(rewritten, name="")
        for fetch in real.fetches:
            graph.as_graph_element(fetch)


def test_variables_and_what_is_fetched_keep_their_dtypes(real):
    rewritten, _ = mixed(real.name)
    variables = {"VariableV2", "VarHandleOp"}
    before = {node.name: node.attr["dtype"].type for node in real.graph_def.node if node.op in variables}
    assert before == {node.name: node.attr["dtype"].type for node in rewritten.node if node.op in variables}


@pytest.mark.by_day("lstm_lm_train")
@pytest.mark.parametrize("real", ["bert_tiny_train", "lstm_lm_train"], indirect=True)
def test_it_trains_like_float32(real):
    """Three steps in a plain session, of the graph as it is and of the rewritten one, from the same weights."""
    real.seeded()
    plain = real.losses(tf.ConfigProto())
    real.graph_def, _ = real.rewritten(precision_mode="allow_mix_precision", device="CPU")
    mixed = real.losses(tf.ConfigProto())
    # BERT-tiny has 2 layers and losses near 0.7, the language model losses near 9: a dozen roundings of 2**-11 each
    assert np.allclose(plain, mixed, rtol=16 * 2**-11)
    assert plain != mixed


def trained(real, mode, steps=300):
    """Losses of a training in one mode: one XLA program a step, or clusters where the step has ops XLA has not."""
    if real.name == "lstm_lm_train":
        options = {} if mode is None else {"precision_mode": mode}
        shapes = {name: value.shape for name, value in real.fed.items()}
        step = npu_shim.compile_step(
            real.graph_def, real.fetches, shapes, initializer=real.about["init"], **options
        )
        return [float(step(real.fed)[0]) for _ in range(steps)]
    mode = mode or "must_keep_origin_dtype"
    return real.losses(sessions.config(precision_mode=mode, npu_shim_profile="gpu", npu_shim_xla="on"), steps)


@pytest.mark.nightly
@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("real", ["lstm_lm_train", "crnn_ctc_train"], indirect=True)
def test_loops_train_for_300_steps_like_float32(real):
    real.seeded()
    full, mixed = (np.array(trained(real, mode)) for mode in (None, "allow_mix_precision"))
    assert mixed[-1] < 0.1 * mixed[0]
    noise = np.abs(np.diff(full[-50:])).max()  # how far two neighbouring steps of float32 are apart
    assert abs(mixed[-20:].mean() - full[-20:].mean()) < max(0.05 * full[-20:].mean(), 2 * noise)


@pytest.mark.nightly  # test_compiled_resnet.py has narrower ones
@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("real", ["resnet50_train"], indirect=True)
def test_resnet_trains_through_a_session_with_xla(real):
    """Through the hook and XLA, since TensorFlow's own float16 convolutions on CPU take minutes."""
    real.seeded()
    npu_shim.unpatch()
    plain = real.losses(tf.ConfigProto(), 1)
    npu_shim.patch()
    mixed = real.losses(sessions.config(precision_mode="allow_mix_precision", npu_shim_xla="on"), 1)
    # 53 convolutions, each with batch norm behind it: their roundings add up to below one per cent of a loss of about
    # 10
    assert np.allclose(plain, mixed, rtol=2e-2)


def decided(plan, without):
    """What a plan decides, but for casts that only moved, which depends on who reads, and for the nodes `without`."""
    moved = Reason.MOVED
    return {
        (d.node, d.slot): (d.becomes, d.reason)
        for d in plan.decisions()
        if d.node not in without and d.reason is not moved
    }


@pytest.mark.by_day("bert_tiny_train", "crnn_ctc_train")
def test_what_is_fetched_changes_nothing_else(small):
    _, plan = mixed(small.name)
    names = sorted(d.node for d in plan.decisions() if d.op not in ("VarHandleOp", "VariableV2"))
    for seed in range(2 if len(names) > 10000 else 5):
        extra = random.Random(seed).sample(names, 20)
        _, other = npu_shim.rewrite(small.graph_def, small.fetches + extra, small.feeds, **MIX)
        alone, together = decided(plan, extra), decided(other, extra)
        both = set(alone) & set(together)  # a cast that moves in one plan only is at another place, and changes no bit
        assert {key: alone[key] for key in both} == {key: together[key] for key in both}
        assert len(both) > 0.95 * len(alone)


def inside_loops(graph_def):
    """Names of the nodes that run once an iteration, which TensorFlow cannot fetch."""
    readers = {}
    for node in graph_def.node:
        for text in node.input:
            readers.setdefault(text.lstrip("^").split(":")[0], []).append(node)
    inside, waiting = set(), [node for node in graph_def.node if node.op in ("Enter", "RefEnter")]
    while waiting:
        node = waiting.pop()
        if node.name not in inside and node.op != "Exit":
            inside.add(node.name)
            waiting += readers.get(node.name, ())
    return inside


@lowers
@pytest.mark.parametrize("real", ["lstm_lm_train", "crnn_ctc_train"], indirect=True)
def test_loops_are_low_all_round(real):
    """Cells, Stacks and TensorArrays of loops and of their gradients; and no weight is cast in every iteration."""
    rewritten, _ = mixed(real.name)
    inside = inside_loops(rewritten)
    nodes = {node.name: node for node in rewritten.node}
    cell = ("Mul", "Sigmoid", "SigmoidGrad", "Tanh", "TanhGrad", "Select", "AddN", "ConcatV2", "Split")
    kinds = [
        [node.attr["T"].type for node in rewritten.node if node.name in inside and node.op == "MatMul"],
        [node.attr["T"].type for node in rewritten.node if node.name in inside and node.op in cell],
        [node.attr["elem_type"].type for node in rewritten.node if node.op == "StackV2"],
        [node.attr["dtype"].type for node in rewritten.node if node.op == "TensorArrayV3"],
    ]
    for dtypes in kinds:
        assert {dtype for dtype in dtypes if dtype in FLOATS} == {FLOAT16}
    inserted = [node for node in rewritten.node if node.op == "Cast" and node.attr["SrcT"].type in FLOATS]
    sources = [nodes[cast.input[0].split(":")[0]] for cast in inserted if cast.name in inside]
    assert sources
    constant = [node.name for node in sources if node.op == "Const" or node.attr["is_constant"].b]
    assert constant == []


@pytest.mark.by_day("lstm_lm_train")
@pytest.mark.parametrize("real", ["lstm_lm_train", "bert_tiny_train"], indirect=True)
def test_what_is_fetched_changes_no_bit_of_the_loss(real):
    real.seeded()
    plain, plan = real.rewritten(precision_mode="allow_mix_precision")
    inside = inside_loops(real.graph_def)
    low = sorted(d.node for d in plan.decisions() if d.becomes == FLOAT16 and d.node not in inside)
    extra = random.Random(1).sample(low, 10)
    fetching, _ = npu_shim.rewrite(
        real.graph_def, real.fetches + extra, real.feeds, precision_mode="allow_mix_precision"
    )
    alone, together = set(), set()
    # the reference variables of these graphs race: in TensorFlow's own float32 session, too, one run of a dozen differs
    for _ in range(4):
        alone.add(two_losses(real, plain, []))
        together.add(two_losses(real, fetching, [name + ":0" for name in extra]))
        if alone & together:
            break
    assert alone & together


def two_losses(real, graph_def, more):
    """The losses of two steps from the initial weights, where tensors are fetched beside them."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        session.run(real.about["init"])
        assert all(session.graph.get_tensor_by_name(name).dtype != tf.float16 for name in more)
        return tuple(float(session.run(real.fetches + more, real.fed)[0]) for _ in range(2))
