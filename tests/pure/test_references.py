"""Readers of reference variables that must not be given a copy from before a write."""

import pytest

from graphs import parse
from npu_shim.rewriter.graph_view import consumers_of
from npu_shim.rewriter.references import late_readers

CASES = {
    "training: read, then written": ("v:VariableV2; r:Identity(v) a:MatMul(r,r); w:AssignAdd(v,a)", ""),
    "a control input after the write": ("v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c); a:MatMul(r,c,^w)", "a"),
    "the read itself waits": ("v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w); a:MatMul(r,c)", ""),
    "another input comes after the write": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c); x:Exp(w) a:MatMul(r,x)", "a"
    ),
    "through a Reshape": ("v:VariableV2 c:Const; r:Identity(v) s:Reshape(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", "a"),
    "the second of two reads": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c) s:Identity(r,^w); a:MatMul(r,c) b:MatMul(s,c)", "s"
    ),
    "another variable is written": (
        "v:VariableV2 u:VariableV2 c:Const; r:Identity(v) w:AssignAdd(u,c); a:MatMul(r,c,^w)", ""
    ),
    "written in a loop": ("v:VariableV2 c:Const; r:Identity(v) e:RefEnter(v) w:AssignAdd(e,c); a:MatMul(r,c)", "a"),
    "one op writes two variables": (
        "v:VariableV2 u:VariableV2 t:VariableV2; r:Identity(v) q:Identity(t) w:ApplyTwo(v,u) a:Exp(r,^w) b:Exp(q,^w)",
        "a",
    ),
    "no reference variables": ("v:ReadVariableOp c:Const; a:MatMul(v,c)", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_late_readers(case):
    text, expected = CASES[case]
    view = parse(text)
    late = late_readers(view, consumers_of(view.nodes))
    assert " ".join(sorted(view.nodes[position].name for position in late)) == expected
