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
Frame = Tuple[str, ...]  # names of loops, outermost first


@analysis
def frames(graph: Graph) -> dict[Node, Frame]:
    """Each node's frame, in topological order; of sources in several frames the deepest one counts."""
    found: dict[Node, Frame] = {}
    if not _has_loops(graph):
        return dict.fromkeys(order.topological(graph), ())
    for node in order.topological(graph):
        inside = max((left(source, found) for source in node.sources() if source in found), key=len, default=())
        found[node] = (*inside, node.attrs["frame_name"].decode()) if node.op in ENTERS else inside
    return found


def _has_loops(graph: Graph) -> bool:
    return any(node.op in ENTERS for node in graph.nodes.values())


def left(node: Node, found: dict[Node, Frame]) -> Frame:
    """The frame of a node's outputs: an Exit's are outside of its loop."""
    return found[node][:-1] if node.op in EXITS else found[node]


def mixed(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yields (node, a source whose outputs are in another frame than it takes): TensorFlow runs no such node."""
    found = frames(graph) if _has_loops(graph) else {}
    for node, frame in found.items():
        taken = frame[:-1] if node.op in ENTERS else frame
        for source in node.sources():
            if source in found and left(source, found) != taken:
                yield node, source
