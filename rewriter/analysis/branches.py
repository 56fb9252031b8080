"""The branches of TensorFlow 1's conditionals that nodes are in: Switch opens a branch, Merge closes it.

s:Switch(x, p)   a:Exp(s:1)   m:Merge(s, a)       a is in branch (p, 1), s and m are in none
"""

from __future__ import annotations

from typing import FrozenSet, Mapping, Tuple

from ..ir.graph import Graph, Node, Value
from . import order
from .cache import analysis

SWITCHES = frozenset(["Switch", "RefSwitch"])
Branch = Tuple[Value, int]  # what decides, and the side: 0 or 1
Inside = FrozenSet[Branch]


@analysis
def branches(graph: Graph) -> dict[Node, Inside]:
    """The branches that each node is in, in topological order; nodes on a cycle that is no loop are left out."""
    branches: dict[Node, Inside] = {}
    for node in order.topological(graph):
        branches[node] = _branches(node, branches)
    return branches


def decides(switch: Node) -> Value:
    """What decides a Switch, behind any Identity nodes."""
    value = switch.inputs[1]
    while value.node.op == "Identity":
        value = value.node.inputs[0]
    return value


def _branches(node: Node, known: Mapping[Node, Inside]) -> Inside:
    waits = [known.get(control, frozenset()) for control in node.controls]
    if node.op not in order.MERGES:
        return frozenset().union(*(_along(value, known) for value in node.inputs), *waits)
    values = [_along(value, known) for value in node.inputs if value.node in known]
    return frozenset.intersection(*values).union(*waits) if values else frozenset()


def _along(value: Value, known: Mapping[Node, Inside]) -> Inside:
    """The branches that a value is in."""
    inside = known.get(value.node, frozenset())
    if value.node.op not in SWITCHES or value.node.inputs[1].node.op == "LoopCond":
        return inside
    return inside | {(decides(value.node), value.index)}
