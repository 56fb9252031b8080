"""Lowers the nodes of a module whose ops are in the table, in its functions too."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.xla.passes.legalize import bodies, order, repeated, splice
from npu_shim.xla.passes.legalize.bodies import Given
from npu_shim.xla.passes.legalize.facts import UNIQUE, UNIQUE_HERE, Facts
from npu_shim.xla.passes.legalize.ops import uniques
from npu_shim.xla.passes.legalize.site import Site
from npu_shim.xla.passes.legalize.table import BY_ROW, DTYPES, TABLE

Row = Callable[[Site], Any]


def lower(module: Module, context: Any = None) -> None:
    """Replaces the ops of the table.

    Args:
        module: has resource variables and v1 control flow.
        context: not used.

    Raises:
        PlanError: a node cannot be lowered; the error names it and what is missing.
    """
    nested = calls.callers_first(module.graph, lambda node: _is_lowered(node) or node.op in UNIQUE)
    given: dict[Graph, list[Given]] = {}
    for graph in [module.graph, *nested]:
        _lower(graph, dict.fromkeys(nested), given)


def _lower(graph: Graph, nested: Mapping[Function, Any], given: dict[Graph, list[Given]]) -> None:
    """Lowers one graph or body; merges into `given` the facts that its calls pass to functions in `nested`."""
    taken = given.get(graph, [])
    kept = _kept(graph)
    _lower_rows(graph, kept, taken)
    _lower_uniques(graph, kept, taken)
    chosen = {node: TABLE[node.op] for node in graph if _is_lowered(node)}
    if chosen or nested:
        facts = Facts(graph, taken)
        for function, arguments in bodies.of_calls(graph, nested, facts):
            given[function] = bodies.merged(given.get(function), arguments)
        order.in_turn(graph, chosen)
        _replace(chosen, facts)


def _kept(graph: Graph) -> frozenset[Node]:
    """The nodes that are fetched or run, or that a function returns."""
    effects = graph.effects.values() if isinstance(graph, Function) else ()
    return frozenset([*(value.node for value in graph.results.values()), *effects])


def _is_lowered(node: Node) -> bool:
    return node.op in TABLE and (node.op not in DTYPES or node.attrs.get("T") in DTYPES[node.op])


def _lower_rows(graph: Graph, kept: frozenset[Node], given: list[Given]) -> None:
    """Lowers the gradients that have a row for each index, so that what takes them has a known size."""
    chosen = {node: TABLE[node.op] for node in graph if node.op in BY_ROW}
    if chosen:
        facts = Facts(graph, given)
        repeated.require_summed(chosen, kept, facts)
        _replace(chosen, facts)


def _lower_uniques(graph: Graph, kept: frozenset[Node], given: list[Given]) -> None:
    """Lowers the Uniques that can be lowered, again while that fixes the sizes of others."""
    while any(node.op in UNIQUE for node in graph):
        facts = Facts(graph, given)
        chosen = uniques.rows(graph, kept, facts)
        if not chosen:
            break
        _replace(chosen, facts)
        for node in chosen:
            node.attrs[UNIQUE_HERE] = True
    uniques.refuse(graph, given)
    uniques.add_sizes(graph)


def _replace(chosen: Mapping[Node, Row], facts: Facts) -> None:
    """Replaces nodes; all are built before the first is replaced, while the facts hold."""
    built = [(node, *splice.in_place_of(node, row, facts)) for node, row in chosen.items()]
    for node, protos, functions in built:
        splice.replace(node, protos, functions)
