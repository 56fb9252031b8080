"""Which loop of TensorFlow 1 each node of a graph is in, and what such a loop is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from npu_shim.step import order
from npu_shim.step.graph import Graph, Node, Source
from npu_shim.step.refusals import Refusal

ENTERS = frozenset(["Enter", "RefEnter"])
EXITS = frozenset(["Exit", "RefExit"])
NEXTS = frozenset(["NextIteration", "RefNextIteration"])
MERGES = frozenset(["Merge", "RefMerge"])
SWITCHES = frozenset(["Switch", "RefSwitch"])

Path = tuple[str, ...]  # names of frames, the outermost first; () outside of loops


@dataclass(frozen=True)
class Variables:
    """A loop variable: the Merge that holds it, where its first value comes from, and where each next one."""

    merge: str
    start: Source
    following: Source


def before_each(graph: Graph) -> dict[str, set[str]]:
    """Name of a node -> names of the nodes that it follows at once within one iteration."""
    return {name: set(forward(node, graph.nodes)) for name, node in graph.nodes.items()}


def in_order(graph: Graph, before: Mapping[str, set[str]]) -> list[Node]:
    """The nodes of a graph, each behind its inputs, but for what a NextIteration gives.

    Args:
        graph: a Graph.
        before: what `before_each` returned of it.

    Raises:
        Refusal: the graph has a cycle that is no loop.
    """
    nodes = graph.nodes
    ready = list(order.in_order(before, order.users_of(before)))
    if len(ready) < len(nodes):
        done = set(ready)
        raise Refusal(next(node for name, node in nodes.items() if name not in done), "it is part of a cycle")
    return [nodes[name] for name in ready]


def forward(node: Node, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Names of the nodes that a node follows within one iteration."""
    if node.op in MERGES:
        return [name for name in node.sources() if nodes[name].op not in NEXTS]
    return node.sources()


def paths(order: Iterable[Node], before: Mapping[str, Iterable[str]]) -> dict[str, Path]:
    """Name -> the frames that a node is in; an Exit is in the frame that it leaves."""
    order = list(order)
    if all(node.op not in ENTERS for node in order):
        return {node.name: () for node in order}
    within: dict[str, Path] = {}
    outside: dict[str, Path] = {}  # of what a node gives: an Exit gives it to the frame around it
    for node in order:
        path: Path = ()
        for source in before[node.name]:
            if len(outside[source]) > len(path):
                path = outside[source]
        if node.op in ENTERS:
            path = (*path, node.attrs["frame_name"])
        within[node.name] = path
        outside[node.name] = path[:-1] if node.op in EXITS else path
    return within


def loop_variables(nodes: Mapping[str, Node], members: Iterable[str]) -> list[Variables]:
    """The loop variables of a frame with these nodes."""
    variables = []
    for name in members:
        node = nodes[name]
        if node.op in MERGES and any(nodes[source].op in NEXTS for source, _ in node.inputs):
            (start,) = (source for source in node.inputs if nodes[source[0]].op not in NEXTS)
            (following,) = (source for source in node.inputs if nodes[source[0]].op in NEXTS)
            variables.append(Variables(name, start, following))
    return variables


def stays(variable: Variables, nodes: Mapping[str, Node], conditions: Any) -> bool:
    """Whether a loop variable is the same in every iteration: it comes back through ops that hand it on."""
    name, output = variable.following
    while name != variable.merge:
        node = nodes[name]
        is_way = node.op in NEXTS or node.op in ("Identity", "RefIdentity")
        if not is_way and not (node.op in SWITCHES and node.inputs[1][0] in conditions):
            return False
        name, output = node.inputs[0]
    return output == 0


def value_source(source: Source, nodes: Mapping[str, Node]) -> Source:
    """Where a value comes from, behind Identities."""
    while nodes[source[0]].op in ("Identity", "RefIdentity", "StopGradient"):
        source = nodes[source[0]].inputs[0]
    return source
