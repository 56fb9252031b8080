"""Finds the OptionalFromValue whose value an OptionalGetValue takes out.

The branches of a conditional have its outputs in common: one may be a matrix in one branch and a vector in the
other. A branch of the gradient takes what the branch of the same number has given:

    OptionalGetValue in branch k of the gradient <- argument <- output i of the conditional <- result i of branch k
"""

from __future__ import annotations

from typing import NamedTuple

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.graphdef import ARGUMENT
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.rewriter.tables.function_calls import BRANCH, CALL, LOOP

VARIANT = NUMBERS["variant"]


class _Site(NamedTuple):
    """A call of a function: its node, and the function's number in it."""

    node: Node
    number: int


def find(module: Module) -> dict[Node, Node]:
    """Returns OptionalGetValue -> OptionalFromValue for those that hold one tensor, where it is known."""
    graphs = [module.graph, *calls.callers_first(module.graph, lambda node: True)]
    sites = _sites(graphs)
    takers = [node for graph in graphs for node in graph if node.op == "OptionalGetValue" and holds_tensor(node)]
    origins = {node: _origin(node.inputs[0], sites) for node in takers}
    return {node: origin for node, origin in origins.items() if origin is not None}


def holds_tensor(node: Node) -> bool:
    """Whether an OptionalFromValue or OptionalGetValue is of one tensor that is no Optional, list, or such."""
    types = component_types(node)
    return len(types) == 1 and types[0] != VARIANT


def component_types(node: Node) -> tuple[int, ...]:
    """The dtypes of what an OptionalFromValue puts in, or an OptionalGetValue takes out."""
    types: tuple[int, ...] = node.attrs["output_types" if node.op == "OptionalGetValue" else "Toutput_types"]
    return types


def _sites(graphs: list[Graph]) -> dict[str, list[_Site]]:
    """Function name -> where it is called."""
    sites: dict[str, list[_Site]] = {}
    for graph in graphs:
        for node in graph:
            for number, name in enumerate(calls.names(node)):
                sites.setdefault(name, []).append(_Site(node, number))
    return sites


def _origin(value: Value, sites: dict[str, list[_Site]]) -> Node | None:
    """The OptionalFromValue that an Optional comes from, None if not known."""
    branches: list[int] = []  # of the conditionals around the place where the Optional is taken, innermost first
    entered: list[Function] = []  # functions whose results led into them
    while True:
        node = value.node
        if node.op == ARGUMENT:
            site = _only_site(node.graph, sites)
            if site is None:
                return None
            value = calls.given(site.node)[node.graph.arguments.index(node)]
            if entered and entered[-1] is node.graph:
                entered.pop()
            elif calls.kind(site.node) == BRANCH:
                branches.append(site.number)
        elif node.op in ("Identity", "OptionalGetValue"):
            value = node.inputs[0]
        elif node.op == "OptionalFromValue":
            if holds_tensor(node):
                return node
            value = node.inputs[0]
        else:
            function = _called(node, branches)
            if function is None:
                return None
            value = function.returned[value.index]
            entered.append(function)


def _only_site(graph: Graph, sites: dict[str, list[_Site]]) -> _Site | None:
    """The only call of a function, None if there are several, or if it is a loop."""
    several = sites[graph.name] if isinstance(graph, Function) else []
    return several[0] if len(several) == 1 and calls.kind(several[0].node) != LOOP else None


def _called(node: Node, branches: list[int]) -> Function | None:
    """The function whose results a node gives to whom `branches` stand for."""
    kind = calls.kind(node)
    if kind == CALL:
        number = 0
    elif kind == BRANCH and branches:
        number = branches.pop()
    else:
        return None
    names, library = calls.names(node), node.graph.module.functions
    return library[names[number]] if number < len(names) and names[number] in library else None
