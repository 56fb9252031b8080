"""The finder of attention: text in; what is taken, and why the rest is not."""

import re

import pytest
from attention_graphs import BACKWARD, FORWARD, GRADIENTS, INFERENCE, TRAINING, changed, planned

from npu_shim.pjrt.attention.spec import CALL, SEED, Spec
from npu_shim.rewriter.ir import text
from npu_shim.xla.passes.attention import apply


def only(source):
    plan = planned(source)[1]
    assert plan.misses == ()
    (match,) = plan.matches
    return match


def reason(source):
    plan = planned(source)[1]
    assert plan.matches == ()
    (miss,) = plan.misses
    return miss.reason


def spec_of(call):
    return Spec.from_json(call.attrs["spec"].decode())


def applied(source):
    module, plan = planned(source)
    apply.apply(module.graph, plan.matches)
    return module, plan


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_training_with_dropout_is_taken_with_its_gradient():
    match = only(TRAINING)
    spec = match.forward
    assert (spec.q, spec.k, spec.v) == ((2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 24))
    assert (spec.dtype, spec.wide, spec.scale, spec.rate) == ("bfloat16", "float32", 0.125, 0.25)
    assert (spec.bias, spec.bias_dtype) == ((2, 1, 1, 32), "bfloat16")
    assert match.backward.kind == "backward"
    assert not match.backward.bias_gradient
    assert {result.name for result in match.walk.results} == {"out", "dq", "dk", "dv"}


def test_inference_is_taken():
    match = only(INFERENCE)
    assert match.backward is None
    assert [result.name for result in match.walk.results] == ["out"]


SAME = {
    "scale behind the mask": [("s1:Mul{T=bfloat16}(s0, scale)", ""),
                              ("s2:AddV2{T=bfloat16}(s1, mask)",
                               "s1:AddV2{T=bfloat16}(s0, mask) s2:Mul{T=bfloat16}(s1, scale)")],
    "a division by 8": [("(s0, scale)", "(s0, eight)"), ("s1:Mul", "s1:RealDiv"), ("g9:Mul", "g9:RealDiv"),
                        ("(g8, scale)", "(g8, eight)"),
                        ("scale:Const", "eight:Const{dtype=bfloat16, value=bfloat16<>(8)} scale:Const")],
    "a scale that is computed": [("(s0, scale)", "(s0, root)"), ("(g8, scale)", "(g8, root)"),
                                 ("scale:Const", ("size:Const{dtype=bfloat16, value=bfloat16<>(64)} "
                                  "root:Rsqrt{T=bfloat16}(size) scale:Const"))],
    "1.15's mask, a Cast that is multiplied": [
        ("keep:", "bools:"), ("p1:", "keep:Cast{SrcT=bool, DstT=float32}(bools) p1:"),
        ("p2:SelectV2{T=float32}(keep, p1, zero)", "p2:Mul{T=float32}(p1, keep)"),
        ("g2:SelectV2{T=float32}(keep, g1, zero)", "g2:Mul{T=float32}(g1, keep)")],
    "a mask that is floored": [
        ("keep:GreaterEqual{T=float32}(u, rate)", ("share:Const{dtype=float32, value=float32<>(0.75)} "
         "sum:Add{T=float32}(share, u) keep:Floor{T=float32}(sum)")),
        ("p2:SelectV2{T=float32}(keep, p1, zero)", "p2:Mul{T=float32}(p1, keep)"),
        ("g2:SelectV2{T=float32}(keep, g1, zero)", "g2:Mul{T=float32}(g1, keep)"),
        ("p1:Mul{T=float32}(p, more)", "p1:RealDiv{T=float32}(p, share)"),
        ("g3:Mul{T=float32}(g2, more)", "g3:RealDiv{T=float32}(g2, share)")],
    "sums of no axes in the gradient": [
        ("g8:Cast", ("none:Const{dtype=int32, value=int32<0>()} g70:Sum{T=float32, Tidx=int32}(g7, none) "
         "g71:Reshape{T=float32, Tshape=int32}(g70, shape) g8:Cast")), ("DstT=bfloat16}(g7)", "DstT=bfloat16}(g71)")],
    "a gradient that asks for shapes": [
        ("g8:Cast", ("ss:Shape{T=bfloat16, out_type=int32}(s1) sm:Shape{T=bfloat16, out_type=int32}(mask) "
         "axes:BroadcastGradientArgs{T=int32}(ss, sm) g70:Sum{T=float32, Tidx=int32}(g7, axes) "
         "g71:Reshape{T=float32, Tshape=int32}(g70, ss) g8:Cast")), ("DstT=bfloat16}(g7)", "DstT=bfloat16}(g71)")],
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_other_ways_to_write_it_are_taken(name):
    match = only(changed(TRAINING, *SAME[name]))
    assert match.backward is not None
    assert match.backward.product_slope == pytest.approx(0.125)
    assert match.forward.scale * match.forward.after == pytest.approx(0.125)
    assert match.forward.rate == 0.25


@pytest.mark.parametrize("sides", ["no, low, s2", "yes, s2, low"])
def test_scores_that_a_mask_replaces_are_hidden(sides):
    low = "low:Const{dtype=bfloat16, value=bfloat16<2,4,16,32>(%s)}" % ", ".join(["-1e9"] * 4096)
    source = changed(
        TRAINING,
        ("s3:Cast", "no:Less{T=bfloat16}(mask, mask) yes:LogicalNot(no) %s "
         "none:ZerosLike{T=bfloat16}(low) sb:SelectV2{T=bfloat16}(%s) s3:Cast" % (low, sides)),
        ("DstT=float32}(s2)", "DstT=float32}(sb)"), ("(g8, scale)", "(gs, scale)"),
        ("g9:Mul", "gs:SelectV2{T=bfloat16}(%s) g9:Mul" % sides.replace("s2", "g8").replace("low", "none")),
    )  # fmt: skip
    module, plan = applied(source)
    assert plan.misses == ()
    spec = plan.matches[0].backward
    assert (spec.bias, spec.hidden, spec.rounded, spec.bias_over) == ((2, 1, 1, 32), (2, 1, 1, 32), "bfloat16", False)
    assert spec.fill == pytest.approx(-1e9, rel=2.0**-8)
    bias, hidden = (value.node for value in module.graph["p/attention/forward"].inputs[3:5])
    assert (bias.name, hidden.op) == ("mask", "Cast")
    assert hidden.inputs[0].node.op == ("Less" if "no" in sides else "LogicalNot")
    assert hidden.inputs[0].node.name == ("no" if "no" in sides else "p/attention/shown")


def test_keys_that_are_transposed_before_are_taken():
    source = changed(
        TRAINING, ("<2,4,32,8>", "<2,4,8,32>"),
        ("s0:BatchMatMulV2{T=bfloat16, adj_y=true}", "s0:BatchMatMulV2{T=bfloat16}"),
        ("dq:BatchMatMulV2{T=bfloat16}(g9, k)", "dq:BatchMatMulV2{T=bfloat16, adj_y=true}(g9, k)"),
        ("dk:BatchMatMulV2{T=bfloat16, adj_x=true}(g9, q)", "dk:BatchMatMulV2{T=bfloat16, adj_x=true}(q, g9)"),
    )  # fmt: skip
    match = only(source)
    assert match.forward.k == (2, 4, 32, 8)
    assert {result.name: result.operand.axes for result in match.walk.results}["dk"] == "bhdt"


def test_what_jax_interprets_has_calls_and_a_seed_of_their_own():
    """RandomUniform counts what it draws, and so does what stands in its place, under the same name."""
    source = changed(
        TRAINING,
        ("u:StatelessRandomUniformV2{dtype=float32, Tshape=int32}(shape, key, counter, alg)",
         "u:RandomUniform{dtype=float32, T=int32, seed=3, seed2=5}(shape)"),
    )  # fmt: skip
    module, plan = planned(source)
    assert plan.misses == ()
    apply.apply(module.graph, plan.matches)
    graph, (match,) = module.graph, plan.matches
    forward, backward = (graph["p/attention/" + kind] for kind in ("forward", "backward"))
    assert (forward.op, backward.op, graph["u"].op) == (CALL, CALL, SEED)
    assert [value.node.name for value in forward.inputs] == ["q", "k", "v", "mask", "u"]
    assert spec_of(backward) == match.backward
    assert (graph["u"].attrs["seed"], graph["u"].attrs["seed2"], graph["u"].inputs[0].node.name) == (3, 5, "shape")
    assert not list(module.functions)


def test_heads_in_the_batch_are_one_head():
    source = INFERENCE
    for shape in ("<2,4,16,8>", "<2,4,32,8>", "<2,4,32,24>"):
        source = changed(source, (shape, shape.replace("2,4", "8")))
    source = changed(source, ("<2,1,1,32>", "<8,1,32>"), ("int32<4>(2, 4, 16, 32)", "int32<3>(8, 16, 32)"))
    spec = only(source).forward
    assert (spec.q, spec.bias) == ((8, 1, 16, 8), (8, 1, 1, 32))


def test_dropout_may_draw_once_for_all_batches_and_heads():
    """As tensor2tensor's Transformer does."""
    match = only(changed(TRAINING, ("int32<4>(2, 4, 16, 32)", "int32<4>(1, 1, 16, 32)")))
    assert (match.backward.mask, match.backward.rate) == ((1, 1, 16, 32), 0.25)
    assert only(TRAINING).backward.mask is None


def test_what_waits_for_a_group_of_its_gradients_waits_for_the_call():
    """As gradients are gated where the forward pass writes variables: spectral normalization does."""
    source = changed(
        TRAINING, ("g1:Cast{SrcT=bfloat16, DstT=float32}(g0)",
                   "group:NoOp(^g0, ^dv) g1:Cast{SrcT=bfloat16, DstT=float32}(g0, ^group)"),
        ("rv:Neg{T=bfloat16}(dv)", "rv:Neg{T=bfloat16}(dv, ^group)"),
    )  # fmt: skip
    module, plan = applied(source)
    assert plan.misses == ()
    assert "group" not in module.graph
    (call,) = module.graph["rv"].controls
    assert call is module.graph["rq"].inputs[0].node
    assert [result.name for result in plan.matches[0].backward.results] == ["dq", "dk", "dv"]


def test_a_group_that_an_operand_waits_for_stays():
    """The call would wait for itself."""
    source = changed(
        INFERENCE, ("s1:Mul", "group:NoOp(^s0) later:Tanh{T=bfloat16}(v, ^group) s1:Mul"), ("(p3, v)", "(p3, later)")
    )
    assert reason(source) == "'group' (NoOp) waits for 's0' too"


def test_a_bias_that_is_trained_gets_its_gradient():
    source = changed(
        TRAINING, ("<2,1,1,32>", "<4,16,32>"),
        ("return ", ("first:Const{dtype=int32, value=int32<1>(0)} db:Sum{T=bfloat16, Tidx=int32}(g8, first) "
         "rb:Neg{T=bfloat16}(db) return rb:0=rb, ")),
    )  # fmt: skip
    match = only(source)
    assert match.backward.bias == (1, 4, 16, 32)
    assert match.backward.bias_gradient


# -- what is not: each part changed ------------------------------------------------------------------------------------

PLANTED = {
    "a summary of the probabilities": (
        [("return ", "m:Tanh{T=float32}(p) return m:0=m, ")], "'m' (Tanh) reads its probabilities"),
    "a fetched score": ([("return ", "return s2:0=s2, ")], "'s2' is fetched"),
    "a score that somebody waits for": ([("return ", "n:NoOp(^s2) return n=^n, ")], "'n' (NoOp) waits for 's2' too"),
    "a softmax of something else": ([("s3:Cast", "s9:Tanh{T=bfloat16}(s2) s3:Cast"),
                                     ("DstT=float32}(s2)", "DstT=float32}(s9)")], "'s9' (Tanh) reads its scores"),
    "another scale in the gradient": (
        [("(g8, scale)", "(g8, other)"), ("g8:Cast", "other:Const{dtype=bfloat16, value=bfloat16<>(0.25)} g8:Cast")],
        "'dq' (BatchMatMulV2) takes 0.3333 times the gradient of its scores, expected 0.1667"),
    "no dropout in the gradient": ([("(keep, g1, zero)", "(keep, g1, more)")],
                                   "'g2' (SelectV2) reads its gradient of the probabilities"),
    "another share in the forward pass": (
        [("(1.3333334)", "(1.5)")],
        "its probabilities are multiplied by 1.5, expected 1.333: the share that is kept is 0.75"),
    "a rate that is fed": (
        [("rate:Const{dtype=float32, value=float32<>(0.25)}", "rate:Placeholder{dtype=float32, shape=<>}")],
        "the rate of its dropout, 'rate', is no constant"),
    "one mask for all keys": ([("int32<4>(2, 4, 16, 32)", "int32<4>(2, 4, 16, 1)")],
                              "its dropout 'u' has one mask for several of its keys"),
    "a draw that another reads": (
        [("return ", "m:Tanh{T=float32}(u) return m:0=m, ")], "'m' (Tanh) reads 'u' too"),
    "a gradient that is not centred": ([("g6:Sub{T=float32}(g3, g5)", "g6:AddV2{T=float32}(g3, g5)")],
                                       "'g6' (AddV2) reads its gradient of the probabilities"),
    "a sum over the queries": ([("int32<>(-1)", "int32<>(2)")], "'g5' (Sum) reads its gradient of the probabilities"),
    "a gradient of other values": (
        [("g0:BatchMatMulV2{T=bfloat16, adj_y=true}(g, v)",
          "w:Placeholder{dtype=bfloat16, shape=<2,4,32,24>} g0:BatchMatMulV2{T=bfloat16, adj_y=true}(g, w)")],
        "'dv' (BatchMatMulV2) reads its probabilities"),
    "a gradient for other keys": (
        [("dq:BatchMatMulV2{T=bfloat16}(g9, k)",
          "w:Placeholder{dtype=bfloat16, shape=<2,4,32,8>} dq:BatchMatMulV2{T=bfloat16}(g9, w)")],
        "'dq' (BatchMatMulV2) reads its gradient of the scores"),
    "products of two dtypes": (
        [("g0:BatchMatMulV2{T=bfloat16", "g0:BatchMatMulV2{T=float32")],
        "its products have dtypes bfloat16 and float32"),
    "float64": ([("bfloat16", "float64"), ("float32", "float64")],
                "its products are float64 and its softmax is float64"),
    "a bias with more elements than scores": (
        [("shape=<2,1,1,32>", "shape=<3,2,1,1,32>")],
        "its bias 'mask' has shape [3, 2, 1, 1, 32], its scores [2, 4, 16, 32]"),
    "keys for all of the batch": (
        [("k:Placeholder{dtype=bfloat16, shape=<2,4,32,8>}", "k:Placeholder{dtype=bfloat16, shape=<1,4,32,8>}")],
        "'s0' (BatchMatMulV2) multiplies [2, 4, 16, 8] by [1, 4, 32, 8], which broadcasts"),
    "scores that are multiplied by zeros": (
        [("s3:Cast", ("b0:GreaterEqual{T=bfloat16}(mask, mask) b:Cast{SrcT=bool, DstT=bfloat16}(b0) "
          "sb:Mul{T=bfloat16}(s2, b) s3:Cast")), ("DstT=float32}(s2)", "DstT=float32}(sb)")],
        "'dq' (BatchMatMulV2) takes the gradient of its scores, and 'b0' hides other ones there than in the scores"),
    "scores that are replaced, and their gradient is not": (
        [("s3:Cast", ("no:Less{T=bfloat16}(mask, mask) low:Const{dtype=bfloat16, value=bfloat16<2,4,16,32>(-9)} "
          "sb:SelectV2{T=bfloat16}(no, low, s2) s3:Cast")), ("DstT=float32}(s2)", "DstT=float32}(sb)")],
        "'dq' (BatchMatMulV2) takes the gradient of its scores, and 'no' hides other ones there than in the scores"),
    "a gradient that is replaced, and its scores are not": (
        [("g9:Mul", "no:Less{T=bfloat16}(mask, mask) gs:SelectV2{T=bfloat16}(no, zeros, g8) g9:Mul"),
         ("(g8, scale)", "(gs, scale)"),
         ("scale:Const", "zeros:Const{dtype=bfloat16, value=bfloat16<>(0)} scale:Const")],
        "'dq' (BatchMatMulV2) takes the gradient of its scores, and 'no' hides other ones there than in the scores"),
    "scores that are replaced by several numbers": (
        [("s3:Cast", ("no:Less{T=bfloat16}(mask, mask) low:Exp{T=bfloat16}(mask) "
          "sb:SelectV2{T=bfloat16}(no, low, s2) s3:Cast")), ("DstT=float32}(s2)", "DstT=float32}(sb)")],
        "'sb' (SelectV2) puts 'low' in the place of scores, which is no single number"),
    "scores that are multiplied by zeros before a bias": (
        [("s2:AddV2", ("b0:GreaterEqual{T=bfloat16}(mask, mask) b:Cast{SrcT=bool, DstT=bfloat16}(b0) "
          "sb:Mul{T=bfloat16}(s1, b) s2:AddV2")), ("(s1, mask)", "(sb, mask)")],
        "'dq' (BatchMatMulV2) takes the gradient of its scores, and 'b0' hides other ones there than in the scores"),
    "no second product": ([("o:BatchMatMulV2{T=bfloat16}(p3, v)", "o:Neg{T=bfloat16}(p3)")],
                          "'y' (Tanh) reads its probabilities"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_changed_part_is_not_taken(name):
    pairs, why = PLANTED[name]
    assert reason(changed(TRAINING, *pairs)) == why


def test_a_softmax_of_no_product_is_not_mentioned():
    plan = planned("x:Placeholder{dtype=float32, shape=<2,3>} p:Softmax{T=float32}(x) return p:0=p\n")[1]
    assert plan.matches == plan.misses == ()


# -- what stands in its place ------------------------------------------------------------------------------------------


def test_two_calls_stand_in_its_place():
    module, plan = applied(TRAINING)
    (match,) = plan.matches
    forward, backward = (node for node in module.graph if node.op == CALL)
    assert (spec_of(forward), spec_of(backward)) == (match.forward, match.backward)
    assert [value.node.name for value in forward.inputs] == ["q", "k", "v", "mask", "p/attention/seed"]
    assert backward.inputs[:5] == forward.inputs
    assert [*map(str, backward.inputs[5:])] == [
        "p/attention/forward",
        "p/attention/forward:1",
        "p/attention/forward:2",
        "g",
    ]
    assert str(module.graph["rk"].inputs[0]) == "p/attention/backward:1"
    assert not {"s0", "p", "u", "g0", "g9", "dq"} & set(module.graph.nodes)


def test_what_is_not_taken_stays():
    source = changed(TRAINING, *PLANTED["a summary of the probabilities"][0])
    module, _ = planned(source)
    before = text.show(module)
    assert text.show(applied(source)[0]) == before


def test_shapes_that_others_ask_for_are_constants():
    source = changed(TRAINING, ("return ", "n:Shape{T=bfloat16, out_type=int64}(s1) return n:0=n, "))
    module, _ = applied(source)
    assert str(module.graph.results["n:0"]) == "n"  # what is fetched keeps its name
    constant = module.graph["n"].inputs[0].node
    assert constant.op == "Const"
    assert constant.attrs["value"].numbers() == (2, 4, 16, 32)
    assert repr(constant.attrs["dtype"]) == "int64"


def test_layers_of_one_kind_share_their_specifications():
    second = re.sub(r"\b(\w+):(?!0=)", r"\1_2:", FORWARD + BACKWARD)
    inputs = re.compile(r"(?<=[(, ])(\w+)(?=[,)])")
    second = re.sub(r"\(([\w, ]+)\)$", lambda match: inputs.sub(r"\1_2", match[0]), second, flags=re.M)
    returned = "r2:Neg{T=bfloat16}(dq_2) return rq:0=rq, rk:0=rk, rv:0=rv, r2:0=r2\n"
    source = FORWARD + BACKWARD + second + GRADIENTS.replace("return rq:0=rq, rk:0=rk, rv:0=rv\n", returned)
    module, plan = applied(source)
    assert [match.name for match in plan.matches] == ["p", "p_2"]
    calls = [node for node in module.graph if node.op == CALL]
    assert (len(calls), len({spec_of(call) for call in calls})) == (4, 2)


# -- biases that are as large as scores by constants alone -------------------------------------------------------------

WIDE = """
m:Placeholder{dtype=bfloat16, shape=<2,1,32>} ones:Const{dtype=bfloat16, value=bfloat16<2,16,1>(%s)}
one:Const{dtype=bfloat16, value=bfloat16<>(1)} low:Const{dtype=bfloat16, value=bfloat16<>(-10000)}
first:Const{dtype=int32, value=int32<1>(1)}
m1:Mul{T=bfloat16}(ones, m) m2:ExpandDims{T=bfloat16, Tdim=int32}(m1, first) m3:Sub{T=bfloat16}(one, m2)
mask:Mul{T=bfloat16}(m3, low)
"""
MASK = "mask:Placeholder{dtype=bfloat16, shape=<2,1,1,32>}"


def with_mask(numbers):
    return changed(TRAINING, (MASK, WIDE % ", ".join(map(str, numbers))))


def test_a_mask_that_ones_repeat_for_all_queries_is_narrow():
    module, plan = applied(with_mask([1] * 32))
    assert plan.matches[0].forward.bias == (2, 1, 1, 32)
    mask = module.graph["p/attention/forward"].inputs[3].node
    assert (mask.name, mask.op) == ("mask/narrow", "Mul")
    assert module.graph["ones/narrow"].attrs["value"].dims == (1, 1, 1)


def test_a_mask_of_each_query_stays():
    module, plan = applied(with_mask([1] * 31 + [0]))
    assert plan.matches[0].forward.bias == (2, 1, 16, 32)
    assert module.graph["p/attention/forward"].inputs[3].node.name == "mask"
