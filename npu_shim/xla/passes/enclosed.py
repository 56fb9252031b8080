"""The nodes that a step need not run, or runs more often than once: those in loops and conditionals of TensorFlow 1.

p:Switch   a:Relu(p:1)   m:Merge(p, a)        p and a are enclosed, m is not: it runs whichever side is taken
e:Enter    ...           x:Exit               nor is x
"""

from __future__ import annotations

from npu_shim.rewriter.analysis import frames, order
from npu_shim.rewriter.analysis.order import MERGES
from npu_shim.rewriter.ir.graph import Graph, Node

SWITCHES = frozenset(["Switch", "RefSwitch"])
OPS = SWITCHES | frames.ENTERS


def nodes(graph: Graph) -> dict[Node, None]:
    """The nodes of a graph that are in a loop or in one side of a conditional, in topological order."""
    if OPS.isdisjoint(node.op for node in graph.nodes.values()):
        return {}
    frame_of = frames.frames(graph)
    depth: dict[Node, int] = {}  # in how many conditionals around all loops
    inside: dict[Node, None] = {}
    for node in order.topological(graph):
        is_looped = bool(frame_of[node])
        depth[node] = max((depth.get(source, 0) for source in node.sources()), default=0)
        if not is_looped:
            depth[node] += (node.op in SWITCHES) - (node.op in MERGES and depth[node] > 0)
        leaves = node.op in frames.EXITS and len(frame_of[node]) == 1
        if depth[node] or (is_looped and not leaves):
            inside[node] = None
    return inside
