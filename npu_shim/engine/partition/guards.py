"""Assertions in conditionals about what is known before the step. No TensorFlow.

    tf.Assert(ok, [x]), x float:    ok -> Switch -> Assert(x) ..^..> Identity -> Merge ..^..> the step

TensorFlow puts such an assertion behind a Switch by itself. A session runs none of the conditional's nodes by name, but
the Merge at its end, which waits for the assertion.
"""

from __future__ import annotations

from typing import Mapping

from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node


def ends(nodes: Mapping[str, Node], depths: Mapping[str, int]) -> dict[str, str]:
    """Returns name of an assertion -> name of the node at the end of its conditional.

    Left out are assertions in loops, and those whose conditional depends on a product or on what is written.

    Args:
        nodes: name -> Node, for all nodes that a run needs.
        depths: as `nodes.depths` returns them.
    """
    inside = [name for name, node in nodes.items() if node.op == "Assert" and depths[name]]
    consumers = walks.consumers_of(nodes) if inside else {}
    found = {}
    for name in inside:
        behind = _first_outside(name, consumers, depths)
        needed = walks.upstream(nodes, behind)
        if len(behind) == 1 and not any(nodes[n].essential or "Enter" in nodes[n].op for n in needed):
            found[name] = min(behind)
    return found


def _first_outside(name: str, consumers: Mapping[str, list[str]], depths: Mapping[str, int]) -> set[str]:
    """The first nodes behind a node that are in no conditional."""
    found, seen, pending = set(), {name}, [name]
    while pending:
        for consumer in consumers.get(pending.pop(), ()):
            if not depths[consumer]:
                found.add(consumer)
            elif consumer not in seen:
                seen.add(consumer)
                pending.append(consumer)
    return found
