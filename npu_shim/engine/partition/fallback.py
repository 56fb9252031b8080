"""What a session runs of a step where a program cannot be had for the shapes that came. No TensorFlow.

The session's parts in front of that program have run, and must not run again: what they gave is fed, and operations
that ran are left out. TensorFlow nevertheless runs a fed tensor's operation for whatever waits for it:

    IteratorGetNext (fed) ..^..> NoOp     the next batch would be taken, and lost
    PyFunc (fed) ..^..> Const             of a gradient; its value is fed too
"""

from __future__ import annotations

from typing import Collection, Iterable, Mapping

from npu_shim.engine.partition.nodes import Node, upstream_by
from npu_shim.rewriter.graph.arguments import source_of, tensor_of


def waiting(
    nodes: Mapping[str, Node], names: Iterable[str], given: Collection[str], once: Collection[str]
) -> tuple[set[str], str]:
    """Returns (names of the constants to feed, why that is not enough: "" if it is).

    Args:
        nodes: name -> Node.
        names: of what the session runs.
        given: tensors that are fed.
        once: names of the nodes that have run and must not run again.
    """
    unfed = {
        node.name: {source_of(text) for text in node.inputs if text[0] == "^" or tensor_of(text) not in given}
        for node in nodes.values()
    }
    constants = {name for name in nodes if nodes[name].op == "Const" and not unfed[name].isdisjoint(once)}
    needed = upstream_by(names, lambda name: () if name in constants else unfed[name])
    again = sorted(needed.intersection(once))
    if not again:
        return constants & needed, ""
    waits = min((name for name in needed if again[0] in unfed[name]), default=again[0])
    words = (waits, nodes[waits].op, again[0], nodes[again[0]].op)
    return constants, "node '%s' (%s) waits for '%s' (%s), which the session runs beforehand, and only once" % words


def ungrouped(nodes: Mapping[str, Node], names: Iterable[str]) -> list[str]:
    """Returns names of nodes, for groups (NoOp) those of what they wait for."""
    alone: dict[str, None] = {}
    pending = [*names][::-1]
    while pending:
        name = pending.pop()
        if nodes[name].op == "NoOp" and nodes[name].inputs:
            pending += [source_of(text) for text in nodes[name].inputs[::-1]]
        else:
            alone[name] = None
    return list(alone)
