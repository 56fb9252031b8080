"""Slow CPU kernels: float32's on rounded values. Decisions stay, casts differ: `x>h() x>f(a)` is x rounded for a."""

from dataclasses import replace

import pytest
import test_plan

import graphs
from npu_shim.rewriter.errors import VerifyError
from npu_shim.rewriter.graph.emulation import Way, already_rounded, gives_rounded
from npu_shim.rewriter.planner.overrides import NO_OVERRIDES
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.planner.verify import verify
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16
from npu_shim.rewriter.tables.policy import PRECISION_MODE

MIX = PRECISION_MODE["allow_mix_precision"]
SLOW = replace(graphs.kernels(), slow=dict.fromkeys(("MatMul", "Mul"), frozenset({FLOAT16})))


def planned(text, feeds=(), preserved=(), kernels=SLOW, mode=MIX):
    return plan(graphs.parse(text, feeds, preserved), graphs.table(), mode, kernels, NO_OVERRIDES)


def ways(done):
    """How the nodes run that do not run by the kernel of their dtype: {name: Way}."""
    return {done.view.nodes[position].name: way for position, way in done.running.ways.items()}


CASTS = {
    # inputs are rounded, and so is the result
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) t:Tanh(a)": "a:h t:h | a>h(t) w>h() w>f(a) x>h() x>f(a)",
    # a chain: what one product rounds the next one reads
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) b:MatMul(a,w)":
    "a:h b:h | a>h() a>f(b) w>h() w>f(a,b) x>h() x>f(a)",
    # what is low already is cast up
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) t:Tanh(a) b:MatMul(t,w)":
    "a:h b:h t:h | a>h(t) t>f(b) w>h() w>f(a,b) x>h() x>f(a)",
    # what hands on values needs no casts between such ops
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) r:Relu(a) m:Reshape(r) b:MatMul(m,w)":
    "a:h b:h m:h r:h | a>h() a>f(r) w>h() w>f(a,b) x>h() x>f(a)",
    # but where only low values are wanted it runs in low precision
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) r:Relu(a) t:Tanh(r)":
    "a:h r:h t:h | a>h(r) w>h() w>f(a) x>h() x>f(a)",
    # a float32 reader sees the rounded result
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) e:Exp(a)": "a:h | a>h() a>f(e) w>h() w>f(a) x>h() x>f(a)",
    # a known value is rounded beforehand
    "x:Placeholder c:Const a:MatMul(x,x) m:Mul(a,c) t:Tanh(m)":
    "a:h m:h t:h | a>h() a>f(m) c>h() c>f(m) m>h(t) x>h() x>f(a,a)",
    # written in low precision by the author
    "x:Placeholder@h a:MatMul@h(x,x) t:Tanh@h(a)": " | a>h(t) x>f(a,a)",
    # a Cast that is there rounds; it reads the float32 result
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) c:Cast@fh(a) t:Tanh@h(c)":
    "a:h c.SrcT:h | w>h() w>f(a) x>h() x>f(a)",
    # also what is handed on to it
    "x:Placeholder w:ReadVariableOp a:MatMul(x,w) r:Relu(a) b:MatMul(r,w) c:Cast@fh(r) t:Tanh@h(c)":
    "a:h b:h c.SrcT:h r:h | a>h() a>f(r) w>h() w>f(a,b) x>h() x>f(a)",
    # an up-cast of a result written low, read by another product
    "x:Placeholder@h a:MatMul@h(x,x) c:Cast@hf(a) b:MatMul(c,c) e:Exp(b)":
    "b:h | a>h(c) b>h() b>f(e) x>f(a,a)",
}  # fmt: skip
STAYS = {
    "x:Placeholder@h a:MatMul@h[keep](x,x)": "kept by scope",
    "x:Placeholder@b a:MatMul@b(x,x)": "bfloat16's kernel is fast",
    "x:Placeholder e:Exp(x) b:Mul(e,e)": "float32",
}


@pytest.mark.parametrize("text", CASTS)
def test_inputs_and_results_are_rounded(text):
    assert graphs.shown(planned(text)) == CASTS[text]


@pytest.mark.parametrize("text", STAYS, ids=list(STAYS.values()))
def test_others_stay(text):
    assert not planned(text).running.ways
    assert not planned(text).changed


def test_a_written_low_product_that_is_fed_stays():
    assert not planned("x:Placeholder@h a:MatMul@h(x,x) e:Tanh@h(a)", feeds=["a"]).changed


@pytest.mark.parametrize("text", [*test_plan.CHANGES, *test_plan.STAYS])
def test_decisions_are_those_of_a_fast_kernel(text):
    def decided(kernels):
        return [d._replace(way=Way.KERNEL) for d in planned(text, kernels=kernels).decisions()]

    assert decided(SLOW) == decided(graphs.kernels())


def test_only_on_a_cpu_and_only_where_the_mode_changes_anything():
    text = "x:Placeholder@h a:MatMul@h(x,x)"
    assert not planned(text, kernels=replace(SLOW, default_device="GPU")).running.ways
    assert not planned(text, mode=PRECISION_MODE["must_keep_origin_dtype"]).changed
    assert ways(planned(text)) == {"a": Way.ROUNDED}


def test_an_op_without_low_kernel_is_lowered_where_float32_stands_for_it():
    only_float32 = graphs.kernels("MatMul")
    text = "x:Placeholder a:MatMul(x,x) t:Tanh(a)"
    assert graphs.shown(planned(text, kernels=only_float32)) == " | "
    assert (
        graphs.shown(planned(text, kernels=replace(only_float32, slow=SLOW.slow))) == "a:h t:h | a>h(t) x>h() x>f(a,a)"
    )


def test_bfloat16_modes_use_its_own_kernels():
    done = planned("x:Placeholder a:MatMul(x,x)", mode=PRECISION_MODE["allow_mix_precision_bf16"])
    assert list(done.becomes) == [graphs.F, BFLOAT16]
    assert not done.running.ways


def test_what_is_fetched_is_the_rounded_result_and_changes_nothing_else():
    text = "x:Placeholder a:MatMul(x,x) t:Tanh(a) r:Relu(a) b:MatMul(r,x)"
    plain, fetched = planned(text), planned(text, preserved=["a", "r"])
    assert ways(plain) == ways(fetched) == {"a": Way.ROUNDED, "r": Way.CARRIED, "b": Way.ROUNDED}
    assert graphs.shown(plain) == "a:h b:h r:h t:h | a>h(t) a>f(r) x>h() x>f(a,a,b)"
    assert graphs.shown(fetched) == "a:h b:h r:h t:h | a>f(r) a>h(t) x>h() x>f(a,a,b)"  # the name goes to the up-cast
    [boundary] = fetched.edits.boundaries  # what carries rounded float32 values is what the fetch is to give
    assert (fetched.view.nodes[boundary.node].name, boundary.renamed) == ("a", "a-in-float16")


def test_a_plan_says_how_it_runs():
    done = planned("x:Placeholder w:ReadVariableOp a:MatMul(x,w) r:Relu(a) b:MatMul(r,w)")
    said = {d.node: (d.becomes, d.way) for d in done.decisions()}
    assert said["a"] == (FLOAT16, Way.ROUNDED)
    assert said["r"] == (FLOAT16, Way.CARRIED)
    assert said["x"] == (graphs.F, Way.KERNEL)
    assert done.emulated() == {2: frozenset({0}), 3: frozenset({0}), 4: frozenset({0})}


@pytest.mark.parametrize(
    ("op", "stands"), [("MatMul@f", True), ("MatMul@h", False), ("Betainc@f", False), ("Lgamma@f", True)]
)
def test_a_slot_stands_for_the_low_dtype_where_its_definition_admits_that(op, stands):
    [_, node] = graphs.parse("x:Placeholder a:%s[rounded](x)" % op).nodes
    assert gives_rounded(node, 0) == stands
    if op.startswith("MatMul"):
        assert gives_rounded(node._replace(layout=node.layout._replace(admits=(None,))), 0) == stands


def test_of_what_an_earlier_rewrite_made_the_casts_are_casts():
    nodes = graphs.parse("x:Placeholder c:Cast@fh[rounded](x) u:Cast@hf[rounded](c) a:MatMul@f[rounded](u,u)").nodes
    assert already_rounded(nodes, SLOW) == [3]
    assert already_rounded(nodes, graphs.kernels()) == []
    assert already_rounded([node._replace(device="/gpu:0") for node in nodes], SLOW) == []


BEFORE = "x:Placeholder a:MatMul(x,x) t:Tanh(a)"
BROKEN = {
    "x:Placeholder; a:MatMul(x,x); t:Tanh@h(d) d:Cast@fh(a)": "input 0 of 'a' is not rounded",
    "x:Placeholder; a:MatMul(c,c); t:Tanh(a) d:Cast@fh(x) c:Cast@hf(d)": "'t' is the unrounded result of 'a'",
}


@pytest.mark.parametrize("after", BROKEN)
def test_verify_finds_what_is_not_rounded(after):
    with pytest.raises(VerifyError) as raised:
        verify(graphs.parse(BEFORE), graphs.parse(after), SLOW, {1: frozenset({0})})
    assert BROKEN[after] in str(raised.value)


def test_verify_finds_nothing_where_all_is_rounded():
    after = "x:Placeholder; a:MatMul(c,c); t:Tanh@h(e) d:Cast@fh(x) c:Cast@hf(d) e:Cast@fh(a)"
    verify(graphs.parse(BEFORE), graphs.parse(after), SLOW, {1: frozenset({0})})
