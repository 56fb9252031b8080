"""Readers of reference variables that must not be given a copy from before a write."""

import dataclasses

import pytest

from graphs import parse
from npu_shim.rewriter.graph.references import readings

CASES = {
    "training: read, then written": ("v:VariableV2; r:Identity(v) a:MatMul(r,r); w:AssignAdd(v,a)", ""),
    "a control input after the write": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c); a:MatMul(r,c,^w)", "a r"
    ),
    "the read itself waits": ("v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w); a:MatMul(r,c)", ""),
    "another input comes after the write": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c); x:Exp(w) a:MatMul(r,x)", "a r"
    ),
    "through a Reshape": (
        "v:VariableV2 c:Const; r:Identity(v) s:Reshape(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", "a r s"
    ),
    "the second of two reads": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c) s:Identity(r,^w); a:MatMul(r,c) b:MatMul(s,c)", "r s"
    ),
    "another variable is written": (
        "v:VariableV2 u:VariableV2 c:Const; r:Identity(v) w:AssignAdd(u,c); a:MatMul(r,c,^w)", ""
    ),
    "written in a loop": ("v:VariableV2 c:Const; r:Identity(v) e:RefEnter(v) w:AssignAdd(e,c); a:MatMul(r,c)", "a r"),
    "one op writes two variables": (
        "v:VariableV2 u:VariableV2 t:VariableV2; r:Identity(v) q:Identity(t) w:ApplyTwo(v,u) a:Exp(r,^w) b:Exp(q,^w)",
        "a r",
    ),
    "through what nobody knows": (
        "v:VariableV2 c:Const; r:Identity(v) s:Mine(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", "a r s"
    ),
    "through what computes": ("v:VariableV2 c:Const; r:Identity(v) s:Exp(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", ""),
    "what is assigned is read, not kept": (
        "v:VariableV2 u:VariableV2 c:Const; r:Identity(v) t:Assign(u,r) w:AssignAdd(v,c); q:Identity(t) a:Exp(q,^w)", ""
    ),
    "handed on by a write": (
        "v:VariableV2 c:Const; t:AssignAdd(v,c) q:Identity(t) w:AssignSub(v,c); a:MatMul(q,c,^w)", "a q"
    ),
    "through a Cast that changes nothing": (
        "v:VariableV2 c:Const; r:Identity(v) s:Cast@ff(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", "a r s"
    ),
    "through a Cast": ("v:VariableV2 c:Const; r:Identity(v) s:Cast@fh(r) w:AssignAdd(v,c); a:MatMul(s,c,^w)", ""),
    "looked at, not written": ("v:VariableV2 c:Const; r:Identity(v) i:IsVariableInitialized(v); a:MatMul(r,c,^i)", ""),
    "a call that waits": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c) f:NoOp(^w) f[in0]:Identity(r); f[body]/a:Relu(f[in0])",
        "f[body]/a f[in0] r",
    ),
    "a branch function whose call waits": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c) f:NoOp(^w) f[in0]:Switch(r,c); f[then]/a:Relu(f[in0])",
        "f[in0] f[then]/a r",
    ),
    "a call that waits for nothing": (
        "v:VariableV2 c:Const; r:Identity(v) f:NoOp() f[in0]:Identity(r) f[body]/a:Relu(f[in0]) w:AssignAdd(v,c)", ""
    ),
    "a reader that waits for a call": (
        "v:VariableV2 c:Const; r:Identity(v) w:AssignAdd(v,c) f:NoOp() f[out0]:Exp(w); a:MatMul(r,c,^f)", "a r"
    ),
    "behind what Grappler replaces once it has left out a wait": (
        "v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w); p:IdentityN(r,r) a:MatMul(p,c) b:MatMul(r,c)", "a p r"
    ),
    "behind a power of 1": (
        "v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w); p:Pow(r,c) a:MatMul(p,c) b:Exp(r)", "a p r"
    ),
    "behind a cond that is decided": (
        "v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w); s:Switch(r,c) n:Neg(r) m:Merge(s,n); a:MatMul(m,c)",
        "a m n r s",
    ),
    "before all writes": (
        "v:VariableV2 c:Const; r:Identity(v) p:IdentityN(r,r) q:Pow(r,c) a:MatMul(p,q) w:AssignAdd(v,a)", ""
    ),
    "through a Stack": (
        ("v:VariableV2 n:Const@i c:Const; s:StackV2(n) r:Identity(v) u:StackPushV2(s,r) w:AssignAdd(v,c,^u);"
        " p:StackPopV2(s,^w) a:MatMul(p,c)"), "a p r u"
    ),
    "through a Stack, before the write": (
        ("v:VariableV2 n:Const@i c:Const; s:StackV2(n) r:Identity(v) u:StackPushV2(s,r) p:StackPopV2(s,^u);"
        " a:MatMul(p,c) w:AssignAdd(v,a)"), ""
    ),
    "an ordinary tensor, written in place": (
        "x:Const i:Const; c:MatMul(x,x) u:InplaceUpdate(c,i,x) r:Identity(c,^u); a:MatMul(r,x) b:MatMul(c,x)", "c r"
    ),
    "what is written in place is read by its own name": (
        "x:Const i:Const; c:MatMul(x,x) u:InplaceUpdate(c,i,x) v:InplaceAdd(u,i,x); a:MatMul(v,x)", ""
    ),
    "no reference variables": ("v:ReadVariableOp c:Const; a:MatMul(v,c)", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_late_readers(case):
    text, expected = CASES[case]
    view = parse(text)
    late = readings(view).late
    assert " ".join(sorted(view.nodes[position].name for position in late)) == expected


@pytest.mark.parametrize(("text", "fetched", "expected"), [
    ("v:VariableV2 c:Const; r:Identity(v) s:Reshape(r) a:MatMul(r,c) w:AssignAdd(v,a)", "s", "r s"),
    ("v:VariableV2 c:Const; w:AssignAdd(v,c) r:Identity(v,^w) s:Reshape(r); a:MatMul(s,c)", "s", ""),
    ("v:VariableV2 c:Const; r:Identity(v) a:MatMul(r,c) w:AssignAdd(v,a)", "a", ""),
    ("v:VariableV2 u:VariableV2 c:Const; r:Identity(v) a:MatMul(r,c) w:AssignAdd(u,a)", "r", ""),
])  # fmt: skip
def test_what_is_fetched_is_read_last(text, fetched, expected):
    view = parse(text)
    view = dataclasses.replace(view, preserved=frozenset([view.positions()[fetched]]))
    assert " ".join(sorted(view.nodes[position].name for position in readings(view).late)) == expected


def test_a_cast_of_what_waits_for_a_write_waits_too():
    view = parse(
        "v:VariableV2 c:Const; r:Identity(v) a:MatMul(r,c) w:AssignAdd(v,a); x:Exp(w) s:Identity(v,^w) t:Reshape(s,x)"
    )
    before = readings(view).before
    names = [node.name for node in view.nodes]
    assert {names[giver]: {names[wait] for wait in waits} for giver, waits in before.items()} == {
        "s": {"w"}, "t": {"w", "x"}
    }  # fmt: skip


def test_a_cast_of_what_may_turn_out_to_be_a_read_waits_too():
    view = parse(
        "v:VariableV2 c:Const; w:AssignAdd(v,c) z:Const(^w) s:Identity(v,^w); p:Add(s,z) t:Reshape(p,c) e:Exp(t)"
    )
    before = readings(view).before
    names = [node.name for node in view.nodes]
    assert {names[giver]: {names[wait] for wait in waits} for giver, waits in before.items()} == {
        "s": {"w"}, "p": {"w", "z"}, "t": {"w", "z"}
    }  # fmt: skip


def test_casts_that_copy_what_is_written():
    view = parse(
        "v:VariableV2 u:VariableV2; r:Identity(v) s:Reshape(r) q:Identity(u) c:Cast@hf(s) d:Cast@hf(q) w:AssignAdd(v,c)"
    )
    assert [view.nodes[position].name for position in readings(view).copies] == ["c"]
