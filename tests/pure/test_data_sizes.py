"""Which nodes have sizes that are data: text in, names out."""

import module_text
import pytest

from npu_shim.rewriter.analysis import data_sizes

# a graph -> (the nodes whose sizes are data, those that depend on such sizes)
CASES = {
    "x:Placeholder; y:Exp(x); s:Sum(y, x)": ("", ""),
    "x:Placeholder; i:Where(x); y:Cast(i)": ("i y", "i y"),
    "x:Placeholder; i:Where(x); s:Sum(i, x); y:Exp(s)": ("i", "i s"),
    "x:Placeholder; i:Where(x); n:Shape(i); y:Fill(n, x); z:Exp(y)": ("i y z", "i n y z"),
    "x:Placeholder; n:Shape(x); y:Fill(n, x)": ("", ""),
    "n:Placeholder; y:Range(c, n, c); c:Const": ("y", "y"),
    "c:Const; n:Neg(c); y:Range(c, n, c)": ("", ""),
    "x:Placeholder; c:Const; y:Reshape(x, c)": ("", ""),
    "x:Placeholder; n:Placeholder; y:Reshape(x, n)": ("y", "y"),
    "x:Placeholder; c:Const; i:Where(x); y:Reshape(i, c)": ("i", "i y"),
    "x:Placeholder; c:Const; i:Where(x); y:Tile(i, c)": ("i y", "i y"),
    "x:Placeholder; i:Where(x); y:Mul(x, i)": ("i", "i y"),
    "x:Placeholder; c:Const; i:Where(x); y:Mul(c, i)": ("i y", "i y"),
    "x:Placeholder; i:Where(x); y:ResourceScatterAdd(x, i, x)": ("i", "i y"),
    "c:Const; m:Merge(c, n); n:NextIteration(m); y:Fill(m, c)": ("y", "y"),
    "c:Const; m:Merge(c, d); d:Const; y:Fill(m, c)": ("", ""),
    "x:Placeholder; i:Where(x); c:Const(^i); y:Fill(c, c)": ("i", "i"),
    "y:Cast(i); i:Where(x); x:Placeholder": ("i y", "i y"),
    "x:Placeholder; y:Fill": ("", ""),
}


@pytest.mark.parametrize("graph", CASES)
def test_what_depends_on_data(graph):
    sizes = data_sizes.of(module_text.parse(graph.replace("; ", "\n") + "\n").graph)
    names = tuple(" ".join(sorted(node.name for node in nodes)) for nodes in sizes)
    assert names == tuple(" ".join(sorted(expected.split())) for expected in CASES[graph])
