"""The branches of TensorFlow 1's conditionals that nodes are in: Switch opens a branch, Merge closes it.

s:Switch(x, p)   a:Exp(s:1)   m:Merge(s, a)       a is in branch (p, 1), s and m are in none
"""

from __future__ import annotations

from typing import Container, FrozenSet, Mapping, Tuple

from ..graph.walks import behind
from ..ir.graph import Graph, Node, Value
from . import order

SWITCHES = frozenset(["Switch", "RefSwitch"])
Branch = Tuple[Value, int]  # what decides, and the side: 0 or 1
Inside = FrozenSet[Branch]


def inside(graph: Graph, fed: Container[Node] = frozenset()) -> dict[Node, Inside]:
    """The branches that each node is in, in topological order; nodes on a cycle that is no loop are left out.

    Args:
        graph: the Graph.
        fed: nodes that may be fed: their values are then not what they compute.
    """
    branches: dict[Node, Inside] = {}
    for node in order.topological(graph):
        branches[node] = _branches(node, branches, fed)
    return branches


def decides(switch: Node, fed: Container[Node] = frozenset()) -> Value:
    """What decides a Switch, behind any Identity nodes that are not fed."""
    value: Value = behind(switch.inputs[1], fed=fed)
    return value


def along(value: Value, known: Mapping[Node, Inside], fed: Container[Node] = frozenset()) -> Inside:
    """The branches that a value is in, by those of nodes."""
    inside = known.get(value.node, frozenset())
    if value.node.op not in SWITCHES or value.node.inputs[1].node.op == "LoopCond":
        return inside
    return inside | {(decides(value.node, fed), value.index)}


def _branches(node: Node, known: Mapping[Node, Inside], fed: Container[Node]) -> Inside:
    waits = [known.get(control, frozenset()) for control in node.controls]
    if node.op not in order.MERGES:
        return frozenset().union(*(along(value, known, fed) for value in node.inputs), *waits)
    values = [along(value, known, fed) for value in node.inputs if value.node in known]
    return frozenset.intersection(*values).union(*waits) if values else frozenset()
