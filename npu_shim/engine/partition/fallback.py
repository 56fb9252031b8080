"""What a session runs of a step where a program cannot be had for the shapes that came. No TensorFlow.

The session's parts in front of that program have run, and must not run again: what they gave is fed, and operations
that ran are left out. TensorFlow nevertheless runs a fed tensor's operation for whatever waits for it:

    IteratorGetNext (fed) ..^..> NoOp     the next batch would be taken, and lost
    PyFunc (fed) ..^..> Const             of a gradient; its value is fed too

A Const that also waits for what is still to run is not fed: who takes it would run too early.
"""

from __future__ import annotations

from typing import Collection, Iterable, Mapping

from npu_shim.engine.partition.nodes import Node, upstream_by
from npu_shim.rewriter.graph.arguments import source_of, tensor_of


def waiting(
    nodes: Mapping[str, Node],
    tensors: Iterable[str],
    operations: Iterable[str],
    given: Collection[str],
    once: Collection[str],
) -> tuple[set[str], str]:
    """Returns (names of the constants to feed, why that is not enough: "" if it is).

    Args:
        nodes: name -> Node.
        tensors: names of what is fetched.
        operations: names of what the session runs.
        given: tensors that are fed.
        once: names of the nodes that have run and must not run again.
    """
    unfed = _unfed(nodes, given)
    waits = [name for name in nodes if nodes[name].op == "Const" and nodes[name].inputs]
    constants = {name for name in waits if _waits_only_for(name, nodes, unfed, once)}
    given = {*given, *(name + ":0" for name in constants)}
    unfed = _unfed(nodes, given)
    roots = [*operations, *(source_of(tensor) for tensor in tensors if tensor_of(tensor) not in given)]
    needed = upstream_by(roots, unfed.__getitem__)
    again = sorted(needed.intersection(once))
    if not again:
        taken = {source_of(text) for name in needed for text in nodes[name].inputs}
        return constants & taken.union(map(source_of, tensors)), ""
    last = min((name for name in needed if again[0] in unfed[name]), default=again[0])
    words = (last, nodes[last].op, again[0], nodes[again[0]].op)
    return constants, "node '%s' (%s) waits for '%s' (%s), which the session runs beforehand, and only once" % words


def _unfed(nodes: Mapping[str, Node], given: Collection[str]) -> dict[str, set[str]]:
    """Name of a node -> names of what runs for it, when these tensors are fed."""
    return {
        node.name: {source_of(text) for text in node.inputs if text[0] == "^" or tensor_of(text) not in given}
        for node in nodes.values()
    }


def _waits_only_for(
    name: str, nodes: Mapping[str, Node], unfed: Mapping[str, Collection[str]], once: Collection[str]
) -> bool:
    """Whether a constant waits for nodes that have run, and for no other one whose order matters."""
    awaited = upstream_by([name], lambda other: () if other in once else unfed[other])
    return not awaited.isdisjoint(once) and not any(_is_ordered(nodes[other]) for other in awaited.difference(once))


def _is_ordered(node: Node) -> bool:
    """Whether it matters when a node runs: it has an effect, or the session may read what others change, a table."""
    return not node.shared or node.report or (node.host is not None and not node.handle and node.op != "Const")


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
