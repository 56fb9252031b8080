"""The collectives of a graph, for the plan's report. It knows TensorFlow's messages, and not TensorFlow."""

from __future__ import annotations

from typing import Any, Iterable

PREFIX = "Collective"


def as_text(graph_def: Any, fetches: Iterable[str]) -> str:
    """Returns a line with the collectives that a run needs, by type and dtype; "" where there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        fetches: names of tensors and operations.
    """
    nodes = {node.name: node for node in graph_def.node}
    found: dict[str, int] = {}
    bodies = [node for function in graph_def.library.function for node in function.node_def]
    for node in [*_needed(nodes, fetches), *bodies]:
        if node.op.startswith(PREFIX):
            found[node.op] = found.get(node.op, 0) + 1
    if not found:
        return ""
    kinds = ", ".join("%d %s" % (count, op) for op, count in sorted(found.items()))
    text = "collectives: %d in a run (%s), outside of what XLA compiles; --engine shows the programs around them\n"
    return text % (sum(found.values()), kinds)


def _needed(nodes: dict[str, Any], fetches: Iterable[str]) -> list[Any]:
    """Returns the nodes that a run computes."""
    waiting, seen = [name.lstrip("^").partition(":")[0] for name in fetches], set()
    needed = []
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        needed.append(nodes[name])
        waiting += [each.lstrip("^").partition(":")[0] for each in nodes[name].input]
    return needed
