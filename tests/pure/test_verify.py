"""verify finds every way in which a rewrite can break its contract, and nothing where it does not."""

import pytest

from graphs import kernels, parse
from npu_shim.rewriter.errors import VerifyError
from npu_shim.rewriter.planner.verify import verify

GRAPH = "x:Placeholder w:ReadVariableOp; a:MatMul(x,w); r:Exp(a)"
BROKEN = {
    "a cast is missing behind": (
        GRAPH,
        "x:Placeholder w:ReadVariableOp; a:MatMul@h(x,w); r:Exp(a)",
        "input 0 of 'a' wants float16 and gets float32",
    ),
    "a cast is missing before a node that has not changed": (
        GRAPH,
        "x:Placeholder w:ReadVariableOp; a:MatMul@h(c,d); r:Exp(a); c:Cast@fh(x) d:Cast@fh(w)",
        "input 0 of 'r' wants float32 and gets float16",
    ),
    "two nodes have one name": (GRAPH, GRAPH + "; a:Exp(x)", "two nodes have one name"),
    "a fetch is lowered": (
        GRAPH, "x:Placeholder w:ReadVariableOp; a:MatMul(x,w); r:Exp@h(c) c:Cast@fh(a)", "'r' is fed or fetched"
    ),
    "a fetch is gone": (GRAPH, "x:Placeholder w:ReadVariableOp; a:MatMul(x,w); s:Exp(a)", "'r' is fed or fetched"),
    "a feed is lowered": (GRAPH, GRAPH.replace("x:Placeholder", "x:Placeholder@h"), "'x' is fed or fetched"),
    "a variable is lowered": ("v:VariableV2; a:Exp(v)", "v:VariableV2@h; a:Exp@h(v)", "'v' holds or changes"),
    "what reads a variable is lowered": (
        "v:VarHandleOp i:Const@i; g:ResourceGather(v,i)",
        "v:VarHandleOp i:Const@i; g:ResourceGather@h(v,i)",
        "'g' holds or changes a variable",
    ),
    "an integer is changed": ("i:Const@i; a:Relu@i(i)", "i:Const@h; a:Relu@h(i)", "T of 'a' went from int32"),
    "no kernel runs it": (
        "x:Placeholder; a:Tanh(x)", "x:Placeholder; a:Tanh@h(c) c:Cast@fh(x)", "no kernel runs 'a' (Tanh)"
    ),
    "a container has two dtypes": (
        "x:Const; s:StackV2(x) p:StackPushV2(s,x) q:StackPopV2(s)",
        "x:Const; s:StackV2(x) p:StackPushV2(s,x) q:StackPopV2@h(s)",
        "'s' and what it is tied to have several dtypes",
    ),
    "operands are exchanged": (
        GRAPH,
        "x:Placeholder w:ReadVariableOp; a:MatMul@h(d,c); r:Exp(u); c:Cast@fh(x) d:Cast@fh(w) u:Cast@hf(a)",
        "input 0 of 'a' was 'x' and is 'w'; input 1 of 'a' was 'w' and is 'x'",
    ),
    "an input leads elsewhere": (GRAPH, GRAPH.replace("r:Exp(a)", "r:Exp(x)"), "input 0 of 'r' was 'a' and is 'x'"),
    "an input leads to another output": (
        "x:Placeholder z:Const@i; s:Split(z,x); r:Exp(s)", "x:Placeholder z:Const@i; s:Split(z,x); r:Exp(s:1)",
        "input 0 of 'r' was 's' and is 's:1'",
    ),
    "an op has become another": (GRAPH, GRAPH.replace("Exp", "Sqrt"), "'r' was of op Exp and is of op Sqrt"),
    "a control input is gone": (
        "x:Placeholder; a:Exp(x); r:Exp(x,^a)", "x:Placeholder; a:Exp(x); r:Exp(x)",
        "'r' waited for 'a' and waits for nothing",
    ),
    "a control input is new": (
        "x:Placeholder; a:Exp(x); r:Exp(x)", "x:Placeholder; a:Exp(x); r:Exp(x,^a)",
        "'r' waited for nothing and waits for 'a'",
    ),
    "a node is missing": (GRAPH, "x:Placeholder w:ReadVariableOp; a:MatMul(x,w)", "1 nodes are missing"),
    "casts read each other": (
        "x:Placeholder; r:Exp(x)", "x:Placeholder; r:Exp(c); c:Cast@ff(d) d:Cast@ff(c)",
        "input 0 of 'r' was 'x' and is nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_every_violation_is_found_and_named(case):
    before, after, violation = BROKEN[case]
    feeds, fetches = (["x"], ["r"]) if "r:Exp" in before else ([], [])
    with pytest.raises(VerifyError) as raised:
        verify(parse(before, feeds, fetches), parse(after), kernels("Tanh"))
    assert violation in str(raised.value)


def test_all_violations_are_told_at_once():
    with pytest.raises(VerifyError) as raised:
        verify(parse(GRAPH, ["x"], ["r"]), parse(GRAPH.replace("x:Placeholder", "x:Placeholder@h")), kernels())
    assert len(raised.value.violations) == 2


RIGHT = {
    # a loop variable and a container in one dtype
    "x:Const; s:StackV2(z) p:StackPushV2(s,x) q:StackPopV2(s) z:Const@i": (
        "x:Const; s:StackV2@h(z) p:StackPushV2@h(s,c) q:StackPopV2@h(s) z:Const@i c:Cast@fh(x)"
    ),
    # an existing Cast may read what it gets
    "x:Placeholder; a:MatMul(x,x) c:Cast@fh(a)": (
        "x:Placeholder; a:MatMul@h(d,d) c:Cast@hh(a) d:Cast@fh(x)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("before", RIGHT)
def test_right_rewrites(before):
    verify(parse(before), parse(RIGHT[before]), kernels("Cast"))


def test_a_right_rewrite_and_what_was_wrong_before_pass():
    before = parse(GRAPH, ["x"], ["r"])
    casts = "x:Placeholder w:ReadVariableOp; a:MatMul@h(c,d); r:Exp(u); c:Cast@fh(x) d:Cast@fh(w) u:Cast@hf(a)"
    verify(before, parse(casts), kernels())
    verify(before, before, kernels())
    disagrees = parse("x:Placeholder@h; a:Exp(x)")  # TensorFlow's own fault to report, and nothing that we did
    verify(disagrees, disagrees, kernels())
