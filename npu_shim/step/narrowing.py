"""Feeds that a program takes in 16 bits: where only casts to one such dtype read one, half of its bytes cross the bus.

The host rounds as the cast does: to the nearest number, ties to even; what is too large becomes infinite.
"""

from __future__ import annotations

import collections
from typing import Any

import ml_dtypes
import numpy as np

from npu_shim.step.control_flow.counted import SHAPES
from npu_shim.step.graph import CONTROL, Node, Program

NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def narrowed(program: Program) -> dict[str, Any]:
    """Name of a feed of float32 -> the one dtype of 16 bits to which all that read it cast it."""
    graph = program.graph
    readers: dict[str, list[Node]] = collections.defaultdict(list)
    for node in graph.nodes.values():
        for source, _ in node.inputs:
            if source in program.feeds and node.op not in SHAPES:
                readers[source].append(node)
    fetched = {name for name, output in graph.results.values() if output != CONTROL}
    dtypes = {name: {_cast_to(node) for node in readers[name]} for name in program.feeds if name not in fetched}
    return {program.feeds[name]: next(iter(to)) for name, to in dtypes.items() if len(to) == 1 and None not in to}


def _cast_to(node: Node) -> Any:
    """The 16-bit dtype to which a node rounds numbers of float32, None for another node."""
    attrs = node.attrs
    rounds = node.op == "Cast" and attrs["SrcT"] == np.float32 and not attrs.get("Truncate", False)
    return attrs["DstT"] if rounds and attrs["DstT"] in NARROW else None
