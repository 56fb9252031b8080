"""Orders the writes of a variable where one of them is lowered.

A kernel reads, computes and writes a variable in one step; unordered kernels run one after another, in any order.
Lowered ops read first and write later, and another write in between would be lost. So the writes of one handle wait for
each other, in an order that the graph allows.
"""

from __future__ import annotations

from typing import Container

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import order, writes
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.graphdef import ARGUMENT

RESOURCE = tf.resource.as_datatype_enum


def in_turn(graph: Graph, lowered: Container[Node]) -> None:
    """Has the writes of a handle wait for each other if one of them is lowered."""
    groups = [_writes(handle) for node in graph if _gives_handles(node) for handle in node.values()]
    groups = [group for group in groups if len(group) > 1 and any(node in lowered for node in group)]
    places = {node: place for place, node in enumerate(order.topological(graph))} if groups else {}
    for group in groups:
        ordered = sorted(group, key=places.__getitem__)
        for before, after in zip(ordered, ordered[1:]):
            after.set_controls([*after.controls, before])


def _gives_handles(node: Node) -> bool:
    dtype = node.attrs.get("dtype" if node.op == "Placeholder" else "T")
    passes_on = node.op in writes.PASSES_ON or node.op in ("Placeholder", ARGUMENT)
    return node.op == "VarHandleOp" or (passes_on and dtype == RESOURCE)


def _writes(handle: Value) -> list[Node]:
    """The nodes that write to the variable of a handle that they take."""
    return [user for user in handle.users if writes.writes(user, handle.node)]
