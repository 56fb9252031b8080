"""The loops of TensorFlow 1 that nodes are in: Enter leads into a frame, Exit out of it.

c:Const   e:Enter{frame_name=loop}(c)   m:Merge(e, n)   ...   x:Exit(s)       c and x are in (), e and m in (loop,)
"""

from __future__ import annotations

from typing import Iterator, Tuple

from ..ir.graph import Graph, Node
from . import order
from .cache import analysis

ENTERS = frozenset(["Enter", "RefEnter"])
EXITS = frozenset(["Exit", "RefExit"])
V1_OPS = frozenset(["Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"])  # of loops and conditionals
Frame = Tuple[str, ...]  # names of loops, outermost first


@analysis
def frames(graph: Graph) -> dict[Node, Frame]:
    """Each node's frame, in topological order; of sources in several frames the deepest one counts."""
    frames: dict[Node, Frame] = {}
    if not _has_loops(graph):
        return dict.fromkeys(order.topological(graph), ())
    for node in order.topological(graph):
        inside = max((left(source, frames) for source in node.sources() if source in frames), key=len, default=())
        frames[node] = (*inside, node.attrs["frame_name"].decode()) if node.op in ENTERS else inside
    return frames


def _has_loops(graph: Graph) -> bool:
    return any(node.op in ENTERS for node in graph.nodes.values())


def left(node: Node, known: dict[Node, Frame]) -> Frame:
    """The frame of a node's outputs: an Exit's are outside of its loop."""
    return known[node][:-1] if node.op in EXITS else known[node]


def mixed(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yields (node, a source whose outputs are in another frame than it takes): TensorFlow runs no such node."""
    frame_of = frames(graph) if _has_loops(graph) else {}
    for node, frame in frame_of.items():
        taken = frame[:-1] if node.op in ENTERS else frame
        for source in node.sources():
            if source in frame_of and left(source, frame_of) != taken:
                yield node, source
