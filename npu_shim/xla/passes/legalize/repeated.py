"""Finds out whether gradients by row may come with several rows for an index, so that XLA knows their number.

    r, i = SparseSegmentSumGradV2(g, indices, segment_ids, n)      r has a row for each different index, i is these
    r = gather(g, segment_ids)     i = indices                     r has a row for each of the indices

Whoever sums the rows of an index, or adds them to a variable, gets the same from both. The rows may be scaled on the
way to that. Whether they are finite is the same too, as the loss scale asks of each gradient or of the sum of its
squares. Anything else may tell the difference, a norm of r for instance.
"""

from __future__ import annotations

from typing import Collection, Iterable, Iterator, Optional, Tuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.legalize.facts import UNIQUE, Facts

# what a tensor is: such rows, those of a low dtype, the indices, a number that is finite where the rows are
ROWS, LOW_ROWS, IDS, SQUARES = "rows", "low rows", "ids", "squares"
WIDE = (tf.float32, tf.float64)  # the rows of an index, and their sum, are finite together
PASSES = frozenset(["Identity", "Switch", "StopGradient", "PreventGradient", "Snapshot", "Cast"])
# op -> the inputs that its result is proportional to, the others being the same for all rows
SCALES = {"Neg": (0,), "Mul": (0, 1), "RealDiv": (0,), "Div": (0,)}
# op -> its input that is summed by index, and the indices
SUMS = {"UnsortedSegmentSum": (0, 1), "ResourceScatterAdd": (2, 1), "ResourceScatterSub": (2, 1)}
TESTS = frozenset(["IsFinite", "IsInf", "IsNan"])
ADDS_UP = frozenset(["AddN", "AddV2", "Pack", "Sum"])

Outputs = Optional[Tuple[Tuple[int, str], ...]]  # (number of an output, what it is); None where rows can be told apart


def require_summed(nodes: Iterable[Node], keep: Collection[Node], facts: Facts) -> None:
    """Raises PlanError if a consumer may tell several rows of an index from one.

    Args:
        nodes: those that have such rows as their first output and the indices as their second.
        keep: the nodes that are fetched or run.
        facts: `facts.Facts` of the graph.
    """
    waiting = []
    for node in nodes:
        if node in keep:
            raise _refusal(node)
        rows = ROWS if facts.tensor(node.value).dtype in WIDE else LOW_ROWS
        waiting += [(node.value, rows), (node.output(1), IDS)]
    seen = set(waiting)
    while waiting:
        value, what = waiting.pop()
        for user, number in _readers(value):
            passed = RULES[what](user, number, what, facts)
            if passed is None or (user in keep and user.op not in SUMS):
                raise _refusal(user)
            fresh = {(user.output(port), is_now) for port, is_now in passed} - seen
            seen |= fresh
            waiting.extend(fresh)


def _readers(value: Value) -> Iterator[tuple[Node, int]]:
    """The nodes that take a value, each with the number of the input."""
    for user in value.users:
        yield from ((user, number) for number, taken in enumerate(user.inputs) if taken is value)


def _refusal(node: Node) -> PlanError:
    return PlanError(
        "node '%s' (%s) has or takes gradients whose number of rows depends on the data, and XLA must know it; "
        "sum them by index, or run the step in the session" % (node.name, node.op)
    )


def _of_rows(node: Node, number: int, what: str, facts: Facts) -> Outputs:
    if node.op in SUMS:
        return () if number == SUMS[node.op][0] else None
    if node.op in TESTS:
        return () if what == ROWS else None
    if node.op == "L2Loss":
        return ((0, SQUARES),) if what == ROWS else None
    if number in SCALES.get(node.op, ()):
        return ((0, what),) if all(_is_same_for_rows(other, node, facts) for other in _others(node, number)) else None
    return _moved(node, number, what, facts)


def _of_ids(node: Node, number: int, what: str, facts: Facts) -> Outputs:
    if node.op in SUMS:
        return () if number == SUMS[node.op][1] else None
    if node.op in UNIQUE:
        return () if "Counts" not in node.op else None
    return _moved(node, number, what, facts)


def _of_squares(node: Node, number: int, what: str, facts: Facts) -> Outputs:
    if node.op in TESTS:
        return ()
    return ((0, what), (1, what)) if node.op in ADDS_UP | PASSES else None


RULES = {ROWS: _of_rows, LOW_ROWS: _of_rows, IDS: _of_ids, SQUARES: _of_squares}


def _moved(node: Node, number: int, what: str, facts: Facts) -> Outputs:
    """What a consumer gives that has the same rows or indices, perhaps with others behind or in front of them."""
    if node.op in PASSES:
        return ((0, what), (1, what))
    if node.op == "ConcatV2":
        axis = facts.constant(node.inputs[-1])
        return ((0, what),) if axis is not None and not axis.any() else None
    if node.op == "Reshape":
        return ((0, what),) if number == 0 and _keeps_rows(node, facts) else None
    return None


def _others(node: Node, number: int) -> Iterator[Value]:
    return (value for position, value in enumerate(node.inputs) if position != number)


def _keeps_rows(node: Node, facts: Facts) -> bool:
    before, after = facts.tensor(node.inputs[0]).shape, facts.tensor(node.value).shape
    return bool(before.rank and after.rank) and before[1:].num_elements() == after[1:].num_elements() is not None


def _is_same_for_rows(value: Value, node: Node, facts: Facts) -> bool:
    shape, rank = facts.tensor(value).shape, facts.tensor(node.value).shape.rank
    return shape.rank is not None and (shape.rank == 0 or (rank is not None and 0 < shape.rank < rank))
