"""Finds out whether gradients by row may come with several rows for an index, so that XLA knows their number.

    r, i = SparseSegmentSumGradV2(g, indices, segment_ids, n)      r has a row for each different index, i is these
    r = gather(g, segment_ids)     i = indices                     r has a row for each of the indices

Whoever sums the rows of an index, or adds them to a variable, gets the same from both. The rows may be scaled on the
way to that; anything else may tell the difference, a norm of r for instance.
"""

from __future__ import annotations

import collections
from typing import Any, Collection, Iterator

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import data, output_of
from npu_shim.xla.lowering.facts import UNIQUE, Facts

ROWS, IDS = 0, 1  # numbers of the outputs
PASSES = frozenset(["Identity", "Switch", "StopGradient", "PreventGradient", "Snapshot", "Cast"])
# op -> the inputs that its result is proportional to, the others being the same for all rows
SCALES = {"Neg": (0,), "Mul": (0, 1), "RealDiv": (0,), "Div": (0,)}
# op -> its input that is summed by index, and the indices
SUMS = {"UnsortedSegmentSum": (0, 1), "ResourceScatterAdd": (2, 1), "ResourceScatterSub": (2, 1)}


def require_summed(graph_def: Any, names: Collection[str], keep: Collection[str], facts: Facts) -> None:
    """Raises PlanError if a consumer may tell several rows of an index from one.

    Args:
        graph_def: tf.GraphDef with resource variables.
        names: of the nodes that have such rows as their first output and the indices as their second.
        keep: names of the nodes that are fetched or run.
        facts: `facts.Facts` of the graph.
    """
    readers = collections.defaultdict(list)
    for node in graph_def.node:
        if node.name in names and node.name in keep:
            raise _refusal(node)
        for number, text in enumerate(data(node)):
            readers[output_of(text)].append((node, number))
    waiting = [(name, port, port) for name in sorted(names) for port in (ROWS, IDS)]
    seen = set(waiting)
    while waiting:
        name, port, what = waiting.pop()
        for node, number in readers[name, port]:
            passed = _passed_on(node, number, what, facts)
            if passed is None or (node.name in keep and node.op not in SUMS):
                raise _refusal(node)
            fresh = {(node.name, each, what) for each in passed} - seen
            seen |= fresh
            waiting.extend(fresh)


def _refusal(node: Any) -> PlanError:
    return PlanError(
        "node '%s' (%s) has or takes gradients of as many rows as the data say, and XLA must know how many; sum them "
        "by index, or run the step in the session" % (node.name, node.op)
    )


def _passed_on(node: Any, number: int, what: int, facts: Facts) -> tuple[int, ...] | None:
    """The outputs of a consumer that are such rows or indices again; None where it may tell the difference."""
    if node.op in SUMS:
        return () if number == SUMS[node.op][what] else None
    if node.op in UNIQUE:
        return () if what == IDS and "Counts" not in node.op else None
    if node.op in PASSES:
        return (0, 1)
    if node.op == "ConcatV2":
        axis = facts.constant(data(node)[-1])
        return (0,) if axis is not None and not axis.any() else None
    if node.op == "Reshape":
        return (0,) if number == 0 and _keeps_rows(node, facts) else None
    if what == ROWS and number in SCALES.get(node.op, ()):
        return (0,) if all(_is_same_for_rows(text, node, facts) for text in _others(node, number)) else None
    return None


def _others(node: Any, number: int) -> Iterator[str]:
    return (text for each, text in enumerate(data(node)) if each != number)


def _keeps_rows(node: Any, facts: Facts) -> bool:
    before, after = facts.tensor(node.input[0]).shape, facts.tensor(node.name).shape
    return bool(before.rank and after.rank) and before[1:].num_elements() == after[1:].num_elements() is not None


def _is_same_for_rows(text: str, node: Any, facts: Facts) -> bool:
    shape, rank = facts.tensor(text).shape, facts.tensor(node.name).shape.rank
    return shape.rank is not None and (shape.rank == 0 or (rank is not None and 0 < shape.rank < rank))
