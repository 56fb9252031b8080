"""The collectives of a graph, for the plan's report. It knows TensorFlow's messages, and not TensorFlow."""

from __future__ import annotations

import collections
from typing import Any, Iterable, Mapping

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef

PREFIX = "Collective"  # of the types of TensorFlow's collectives


def counted(graph_def: Any, fetches: Iterable[str]) -> dict[str, int]:
    """Returns how many collectives of each type a run needs.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        fetches: names of tensors and operations.
    """
    module = graphdef.read(graph_def)
    if not any(op.startswith(PREFIX) for op in module.ops()):
        return {}
    names = [source_of(name) for name in fetches]
    run = order.ancestors(module.graph[name] for name in names if name in module.graph)
    bodies = (node for function in graph_def.library.function for node in function.node_def)
    return collections.Counter(node.op for node in [*run, *bodies] if node.op.startswith(PREFIX))


def as_text(counts: Mapping[str, int], calls: int, programs: int | None, inside: bool = False) -> str:
    """Returns a line of the report, "" where there are no collectives.

    Args:
        counts: of `counted`, as a session runs them.
        calls: how many the script has, before those are fused that may be.
        programs: how many programs XLA makes of what lies around them, 0 where it is not taken, None without an engine.
        inside: whether all ranks may run one program with them inside.
    """
    if not counts:
        return ""
    kinds = ", ".join("%d %s" % (count, op) for op, count in sorted(counts.items()))
    fused = " of %d calls" % calls if calls > sum(counts.values()) else ""
    line = "collectives: %d in a run (%s)%s, outside of what XLA compiles" % (sum(counts.values()), kinds, fused)
    if programs is None:
        return line + "\n"
    if inside:
        return line + "; engine pjrt: inside of one program of all ranks (--engine)\n"
    around = "1 program" if programs == 1 else "%d programs" % programs if programs else "no program"
    return "%s; engine pjrt: %s around them (--engine)\n" % (line, around)
