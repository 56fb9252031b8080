"""Tells training steps from other runs, which stay in the session. No TensorFlow."""

from __future__ import annotations

from typing import Collection, Mapping

from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node

LITTLE = "it holds little work"
ENOUGH = 64  # floating-point ops, without a product, that make a program worthwhile


def refusal(nodes: Mapping[str, Node], local: Collection[str] = (), initializers: Collection[str] = ()) -> str | None:
    """Returns why a run is not a training step, None if it is one.

    A training step writes to variables, and the written values depend on a variable through a product or ENOUGH other
    floating-point ops. An evaluation is none: the sums and counts of metrics that it writes are local variables.

    Args:
        nodes: name -> Node, for all nodes that the run needs.
        local: names of the variables that belong to no model, as in `Node.writes`.
        initializers: names of the nodes that give variables their initial values.
    """
    writers = [node.name for node in nodes.values() if node.writes]
    if not writers:
        return "it writes no variable"
    if set(writers).issubset(initializers):
        return "it initializes variables"
    if all(node.writes.issubset(local) for node in nodes.values()):
        return "it writes local variables alone, as evaluations do"
    learned = walks.downstream(nodes, [node.name for node in nodes.values() if node.learned])
    worked = [name for name in learned if nodes[name].product]
    if worked and not walks.downstream(nodes, worked).isdisjoint(writers):
        return None
    count = sum(nodes[name].computes for name in learned)  # an initializer copies variables beside much random work
    if learned.isdisjoint(writers) or count < ENOUGH:
        return LITTLE + ": no product before what it writes, and %d floating-point ops" % count
    return None
