"""What XLA would fold to a constant, which stays outside of clusters where several workers run.

Before TensorFlow compiles a cluster it folds what depends on constants alone, on a device "/job:localhost" of its own.
The devices of several workers have another job, and XLA refuses a cluster on two devices ("Multiple CPU devices").
"""

from __future__ import annotations

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node


def excluded(graph: Graph) -> set[str]:
    """Returns the names of the nodes that depend on constants alone, without the constants themselves."""
    constants = {node for node in graph if node.op == "Const"}
    folded: set[Node] = set()
    for node in order.topological(graph):  # what a loop comes back to is none
        definition = registered(node.op)
        is_pure = definition is not None and not definition.is_stateful
        if is_pure and node.inputs and all(value.node in constants or value.node in folded for value in node.inputs):
            folded.add(node)
    return {node.name for node in folded}
