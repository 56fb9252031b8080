"""The rule about segments without elements: their maximum is the dtype's lowest number, their minimum its highest.

Maxima of nothing (Max, also those of sparse tensors) are infinite in every dtype, and SegmentMax gives 0.
"""

from typing import Iterator

import numpy as np

from ..graph.graph_view import Node
from .seen import WAY_OUT, Finding, Seen, told

EMPTY = {"UnsortedSegmentMax": -65504.0, "UnsortedSegmentMin": 65504.0}  # op -> its float16 value of an empty segment
OF_FLOAT32 = float(np.finfo(np.float32).max)


def empty_segments(seen: Seen) -> Iterator[str]:
    """Maxima and minima of segments in float16, of which one may be empty: scripts know those by their value."""
    findings = []
    for position in seen.plan.view.of_ops(list(EMPTY)):
        node = seen.plan.view.nodes[position]
        if seen.is_lowered(position) and not _all_have_elements(seen, node):
            text = (
                "'%%s' (op %%s)%s is computed in float16, where a segment without elements gets %%g, not %%.2g as in "
                "float32: a script that compares with less takes other branches; %%s"
            )
            value = EMPTY[node.op]
            values = (node.name, node.op, value, np.copysign(OF_FLOAT32, value), WAY_OUT)
            findings.append((node.op, Finding(text, values)))
    yield from told(findings)


def _all_have_elements(seen: Seen, node: Node) -> bool:
    """Whether constants say which segment each element belongs to, and that none is without."""
    ids, count = (seen.origin(port) for port in node.inputs[1:3])
    if seen.node(ids).op != "Const" or seen.node(count).op != "Const" or {ids, count} & set(seen.plan.view.fed):
        return False
    return set(range(int(seen.evaluated(count)))) <= set(seen.evaluated(ids).flat)
