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
        "x:Placeholder w:ReadVariableOp; c:Cast@fh(x) d:Cast@fh(w); a:MatMul@h(c,d); r:Exp(a)",
        "input 0 of 'r' wants float32 and gets float16",
    ),
    "two nodes have one name": (GRAPH, GRAPH + "; a:Exp(x)", "two nodes have one name"),
    "a fetch is lowered": (
        GRAPH, "x:Placeholder w:ReadVariableOp; a:MatMul(x,w); c:Cast@fh(a) r:Exp@h(c)", "'r' is fed or fetched"
    ),
    "a fetch is gone": (GRAPH, "x:Placeholder w:ReadVariableOp; a:MatMul(x,w); s:Exp(a)", "'r' is fed or fetched"),
    "a feed is lowered": (GRAPH, GRAPH.replace("x:Placeholder", "x:Placeholder@h"), "'x' is fed or fetched"),
    "a variable is lowered": ("v:VariableV2; a:Exp(v)", "v:VariableV2@h; a:Exp@h(v)", "'v' holds or changes"),
    "what reads a variable is lowered": (  # review of 2026-11, fault 8
        "v:VarHandleOp i:Const@i; g:ResourceGather(v,i)",
        "v:VarHandleOp i:Const@i; g:ResourceGather@h(v,i)",
        "'g' holds or changes a variable",
    ),
    "an integer is changed": ("i:Const@i; a:Relu@i(i)", "i:Const@h; a:Relu@h(i)", "T of 'a' went from int32"),
    "no kernel runs it": (
        "x:Placeholder; a:Tanh(x)", "x:Placeholder; c:Cast@fh(x) a:Tanh@h(c)", "no kernel runs 'a' (Tanh)"
    ),
    "a container has two dtypes": (
        "x:Const; s:StackV2(x) p:StackPushV2(s,x) q:StackPopV2(s)",
        "x:Const; s:StackV2(x) p:StackPushV2(s,x) q:StackPopV2@h(s)",
        "'s' and what it is tied to have several dtypes",
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
    casts = "x:Placeholder w:ReadVariableOp; c:Cast@fh(x) d:Cast@fh(w); a:MatMul@h(c,d); u:Cast@hf(a) r:Exp(u)"
    verify(before, parse(casts), kernels())
    verify(before, before, kernels())
    disagrees = parse("x:Placeholder@h; a:Exp(x)")  # TensorFlow's own fault to report, and nothing that we did
    verify(disagrees, disagrees, kernels())
