"""What functions the nodes of a graph call, and what these are given.

c:If{then_branch=@f, else_branch=@g}(p, x)     calls g and f, with x; p says which
"""

from __future__ import annotations

from typing import Callable

from ..ir.attributes import Callee
from ..ir.graph import Graph, Node, Value
from ..ir.module import Function
from ..tables.function_calls import BRANCH, CALL, KINDS


def kind(node: Node) -> str | None:
    """How a node uses functions: CALL, BRANCH, LOOP; None where it calls none."""
    if node.op in KINDS:
        return KINDS[node.op][0]
    return CALL if node.op in node.graph.module.functions else None


def names(node: Node) -> list[str]:
    """The names of the functions that a node calls, in the order of its kind; "" where an attribute is missing."""
    if node.op in node.graph.module.functions:
        return [node.op]
    values = [node.attrs.get(attribute) for attribute in KINDS.get(node.op, ("", ()))[1]]
    callees = [callee for value in values for callee in (value if type(value) is tuple else (value,))]
    return [callee.name if isinstance(callee, Callee) else "" for callee in callees]


def functions(node: Node) -> list[Function]:
    """The functions of the library that a node calls, in the order of its kind."""
    library = node.graph.module.functions
    return [library[name] for name in names(node) if name in library]


def given(node: Node) -> tuple[Value, ...]:
    """What a node that calls functions gives them."""
    return node.inputs[1:] if kind(node) == BRANCH else node.inputs


def callers_first(graph: Graph, is_wanted: Callable[[Node], bool]) -> list[Function]:
    """The functions that have a wanted node, or call one that has, as far as a graph calls them: callers first."""
    wanted: dict[Function, bool] = {}
    order: list[Function] = []

    def visit(function: Function) -> bool:
        if function not in wanted:
            wanted[function] = False  # a function that calls itself adds nothing
            nodes = list(function)
            inner = [visit(callee) for node in nodes for callee in functions(node)]
            wanted[function] = any(inner) or any(map(is_wanted, nodes))
            order.append(function)
        return wanted[function]

    for node in graph:
        for callee in functions(node):
            visit(callee)
    return [function for function in reversed(order) if wanted[function]]
