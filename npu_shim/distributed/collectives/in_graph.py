"""The collectives of a graph, for the plan's report. It knows TensorFlow's messages, and not TensorFlow."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

PREFIX = "Collective"  # of the types of TensorFlow's collectives


def counted(graph_def: Any, fetches: Iterable[str]) -> dict[str, int]:
    """Returns how many collectives of each type a run needs.

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
    return found


def as_text(found: Mapping[str, int], calls: int, programs: int | None) -> str:
    """Returns a line of the report, "" where there are no collectives.

    Args:
        found: of `counted`, as a session runs them.
        calls: how many the script has, before those are fused that may be.
        programs: how many programs XLA makes of what lies around them, 0 where it is not taken, None without an engine.
    """
    if not found:
        return ""
    kinds = ", ".join("%d %s" % (count, op) for op, count in sorted(found.items()))
    fused = " of %d calls" % calls if calls > sum(found.values()) else ""
    line = "collectives: %d in a run (%s)%s, outside of what XLA compiles" % (sum(found.values()), kinds, fused)
    if programs is None:
        return line + "\n"
    around = "1 program" if programs == 1 else "%d programs" % programs if programs else "no program"
    return "%s; engine pjrt: %s around them (--engine)\n" % (line, around)


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
