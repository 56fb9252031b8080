"""Ids by which rows of a table are looked up: there are no more different ones than the table has rows.

    Gather(table [v, h], ids), Unique(Reshape(ids, [r]))    ->    Unique gives min(r, v) values at most

The gradient of a lookup is added up by different ids before an optimizer takes it. Where a batch has more ids than the
table has rows, what several devices exchange is then as large as the table, not as the batch.

    SparseApplyAdagrad(table, ..., indices=Unique(ids))    no row comes twice, which such an update must know
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Iterator, Mapping

from npu_shim.step.graph import Graph, Node, Program, Source

MOST = "most"  # an attribute of our own: how many values there are at most
DIFFERENT = "different"  # likewise of sparse updates: no row comes twice
UNIQUE = frozenset(["Unique", "UniqueWithCounts", "UniqueV2", "UniqueWithCountsV2"])
OF_IDS = frozenset(
    ["Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient"]
)  # the first input, otherwise shaped
OF_TABLES = frozenset(["Identity", "ReadVariableOp", "Cast"])
TABLES = frozenset(["Variable", "VariableV2", "VarHandleOp"])
SPARSE = ("SparseApply", "ResourceSparseApply")
LOOKUPS = frozenset(["Gather", "GatherV2", "ResourceGather"])


def bounded(program: Program) -> Program:
    """Returns a program whose nodes of UNIQUE say how many values there are at most, where a lookup tells it.

    Sparse updates say where their rows are those of such a node.
    """
    graph = program.graph
    if not any(node.op in UNIQUE for node in graph.nodes.values()):
        return program
    bounds: dict[Source, int] = {}
    for ids, rows in _lookups(graph):
        bounds[ids] = min(rows, bounds.get(ids, rows))
    return replace(
        program, graph=replace(graph, nodes={n: _said(node, graph, bounds) for n, node in graph.nodes.items()})
    )


def _lookups(graph: Graph) -> Iterator[tuple[Source, int]]:
    """(where ids come from, rows of the table) of the lookups in variables."""
    for node in graph.nodes.values():
        if node.op not in LOOKUPS or node.attrs.get("batch_dims") or not _is_first(node, graph):
            continue
        table = graph.nodes[_origin(node.inputs[0], graph, OF_TABLES)[0]]
        shape = table.attrs.get("shape") if table.op in TABLES else None
        if shape and shape[0] > 0:
            yield _origin(node.inputs[1], graph, OF_IDS), shape[0]


def _is_first(node: Node, graph: Graph) -> bool:
    """Whether a lookup is in the first dimension."""
    if len(node.inputs) < 3:
        return True
    axis = graph.nodes[node.inputs[2][0]]
    return axis.op == "Const" and int(axis.attrs["value"]) == 0


def _origin(source: Source, graph: Graph, moves: frozenset[str]) -> Source:
    node = graph.nodes[source[0]]
    while node.op in moves and source[1] == 0:
        source = node.inputs[0]
        node = graph.nodes[source[0]]
    return source


def _said(node: Node, graph: Graph, bounds: Mapping[Source, int]) -> Node:
    if node.op.startswith(SPARSE) and any(map(functools.partial(_are_different, graph, node), node.inputs)):
        return node._replace(attrs={**node.attrs, DIFFERENT: True})
    most = bounds.get(_origin(node.inputs[0], graph, OF_IDS)) if node.op in UNIQUE else None
    return node if most is None else node._replace(attrs={**node.attrs, MOST: most})


def _are_different(graph: Graph, update: Node, source: Source) -> bool:
    """Whether an input of an update is its indices, and all different."""
    name, output = _origin(source, graph, frozenset(["Identity"]))
    node = graph.nodes[name]
    return node.op in UNIQUE and output == 0 and node.attrs["T"] == update.attrs["Tindices"] != update.attrs["T"]
