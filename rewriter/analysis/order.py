"""The order in which the nodes of a graph can run, and what a node needs or reaches."""

from __future__ import annotations

from typing import Callable, Iterable

from ..ir.graph import Graph, Node
from .cache import analysis

NEXT = frozenset(["NextIteration", "RefNextIteration"])  # their edges lead to the next iteration of a loop
MERGES = frozenset(["Merge", "RefMerge"])


@analysis
def topological(graph: Graph) -> list[Node]:
    """The nodes, each behind its sources: first come, first served; edges to a loop's next iteration do not count.

    Nodes on another cycle, and behind one, are left out; see `unordered`.
    """
    waits = {node: len(node.inputs) + len(node.controls) for node in graph.nodes.values()}
    for node in waits:
        if node.op in MERGES:
            waits[node] -= sum(source.op in NEXT for source in node.sources())
    order = [node for node, count in waits.items() if not count]
    for node in order:  # grows while it is read
        closes = node.op in NEXT
        for value in node.values():
            for user, count in value.users.items():
                if closes and user.op in MERGES:
                    continue
                left = waits[user] = waits[user] - count
                if not left:
                    order.append(user)
    return order


def closes_loop(node: Node) -> bool:
    """Whether a node, a Merge, takes what a loop's next iteration begins with; that of a conditional does not."""
    return any(value.node.op in NEXT for value in node.inputs)


def unordered(graph: Graph) -> list[Node]:
    """The nodes on cycles that are no loop, and those behind one."""
    ordered = topological(graph)
    if len(ordered) == len(graph):
        return []
    left = set(graph).difference(ordered)
    return [node for node in graph if node in left]


def cycle(graph: Graph) -> list[Node]:
    """Nodes that wait for one another, each for the one before it and the first for the last; [] if there are none."""
    left = dict.fromkeys(unordered(graph))
    if not left:
        return []
    way = [next(iter(left))]
    while way.count(way[-1]) < 2:
        closing = NEXT if way[-1].op in MERGES else ()
        way.append(next(node for node in way[-1].sources() if node in left and node.op not in closing))
    return way[way.index(way[-1]) : -1][::-1]


def ancestors(nodes: Iterable[Node], through: Callable[[Node], bool] | None = None) -> dict[Node, None]:
    """The nodes that some nodes need, with these: an ordered set, nearest first.

    Args:
        nodes: where to begin.
        through: whether the sources of a node count; None for all.
    """
    return _walk(nodes, Node.sources, through)


def descendants(nodes: Iterable[Node], through: Callable[[Node], bool] | None = None) -> dict[Node, None]:
    """The nodes that some nodes reach, with these; the same with users in place of sources."""
    return _walk(nodes, Node.users, through)


def _walk(
    nodes: Iterable[Node], neighbours: Callable[[Node], Iterable[Node]], through: Callable[[Node], bool] | None
) -> dict[Node, None]:
    """The nodes that are reached breadth first, with those where the walk begins."""
    reached = dict.fromkeys(nodes)
    pending = list(reached)
    for node in pending:  # grows while it is read
        for neighbour in neighbours(node) if through is None or through(node) else ():
            if neighbour not in reached:
                reached[neighbour] = None
                pending.append(neighbour)
    return reached
