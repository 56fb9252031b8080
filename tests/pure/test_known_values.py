"""Known values: constants and short arithmetic on them."""

from dataclasses import replace

import pytest

import graphs
from npu_shim.rewriter.graph import folding
from npu_shim.rewriter.graph.graph_view import Port

TWO = 2.0


def view_of(text, feeds=(), size=1):
    view = graphs.parse(text, feeds)
    return replace(view, sizes=dict.fromkeys(range(len(view.nodes)), size))


def chain(length, op="Mul"):
    """c1 = c0 * c0, c2 = c1 * c1, ...; each is read twice."""
    return "c0:Const; " + " ".join("c%d:%s(c%d,c%d)" % (n, op, n - 1, n - 1) for n in range(1, length + 1))


@pytest.mark.parametrize(
    ("length", "known"),
    [(0, True), (1, True), (folding.LONGEST - 1, True), (folding.LONGEST, False), (100, False), (5000, False)],
)
def test_an_expression_is_known_up_to_a_length_and_found_in_time(length, known):
    assert folding.known(view_of(chain(length)), Port(length, 0)) == known


def test_each_value_of_a_shared_expression_is_worked_out_once():
    asked = []

    def constant(position):
        asked.append(position)
        return TWO

    assert folding.value(view_of(chain(folding.LONGEST - 1, "Add")), Port(folding.LONGEST - 1, 0), constant) == (
        TWO * 2.0 ** (folding.LONGEST - 1)
    )
    assert asked == [0]


def test_inputs_keep_their_order():
    view = view_of("a:Const b:Const; d:RealDiv(a,b) n:Neg(d) s:Sub(n,a)")
    assert folding.value(view, Port(4, 0), {0: 6.0, 1: 3.0}.get) == -8.0


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        ("x:Placeholder", ()),
        ("c:Const x:Placeholder; m:Mul(c,x)", ()),
        ("c:Const; m:Mul(c,c) e:Exp(m)", ()),
        ("c:Const d:Const; m:Mul(c,c,^d)", ()),
        ("c:Const; m:Mul(c,c)", ("c",)),
        ("c:Const@h; m:Mul@h(c,c)", ()),
    ],
)
def test_what_the_graph_decides_is_not_known(text, feeds):
    view = view_of(text, feeds)
    assert not folding.known(view, Port(len(view.nodes) - 1, 0))


@pytest.mark.parametrize(("count", "known"), [(1, True), (2, False)])
def test_arithmetic_is_on_single_elements(count, known):
    view = view_of("c:Const; n:Neg(c)", size=count)
    assert folding.known(view, Port(1, 0)) == known
    assert folding.known(view, Port(0, 0))


@pytest.mark.parametrize(("count", "known"), [(folding.LARGEST, True), (folding.LARGEST + 1, False)])
def test_a_large_constant_stays_and_is_cast(count, known):
    view = view_of("c:Const", size=count)
    assert folding.known(view, Port(0, 0)) == known


def test_control_inputs_are_those_of_the_constants():
    view = view_of("p:NoOp q:NoOp a:Const(^p) b:Const(^q,^p); m:Mul(a,b)")
    assert folding.controls(view, Port(4, 0)) == [0, 1]
    assert folding.controls(view, Port(2, 0)) == [0]


def test_a_cycle_is_not_known():
    assert not folding.known(view_of("a:Mul(b,b) b:Mul(a,a)"), Port(0, 0))
