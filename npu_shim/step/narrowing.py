"""Feeds that a program takes in 16 bits: where only casts to one such dtype read one, half of its bytes cross the bus.

The host rounds as the cast does: to the nearest number, ties to even; what is too large becomes infinite.
"""

from __future__ import annotations

import collections
from typing import Any, Collection

import numpy as np

from npu_shim.step.control_flow.counted import SHAPES
from npu_shim.step.graph import CONTROL, Node, Program


def narrowed(program: Program, allowed: Collection[str]) -> dict[str, Any]:
    """Name of a feed of float32 -> the one dtype, of those with the names `allowed`, to which all that read it cast."""
    graph = program.graph
    readers: dict[str, list[Node]] = collections.defaultdict(list)
    for node in graph.nodes.values():
        for source, _ in node.inputs:
            if source in program.feeds and node.op not in SHAPES:
                readers[source].append(node)
    fetched = {name for name, output in graph.results.values() if output != CONTROL}
    dtypes = {
        name: {_cast_to(node, allowed) for node in readers[name]} for name in program.feeds if name not in fetched
    }
    return {program.feeds[name]: next(iter(to)) for name, to in dtypes.items() if len(to) == 1 and None not in to}


def _cast_to(node: Node, allowed: Collection[str]) -> Any:
    """The dtype to which a node rounds numbers of float32, None for another node or dtype."""
    attrs = node.attrs
    rounds = node.op == "Cast" and attrs["SrcT"] == np.float32 and not attrs.get("Truncate", False)
    return attrs["DstT"] if rounds and getattr(attrs["DstT"], "name", "") in allowed else None
