"""Refuses lists of version 2's TensorArrays that may grow.

XLA's lists keep the length that they are made with, and what is written beyond it overwrites the last item:

    tf.TensorArray(tf.float32, 2, dynamic_size=True).write(3, x)     XLA writes x to item 1 (TensorFlow 2.15.1)

A write is sound where its index is known, or counts the iterations of a loop, and stays below the length.
"""

from __future__ import annotations

import math
from typing import Any, Iterator

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.shapes.list_sizes import Answers, body_of
from npu_shim.xla.passes.shapes.trip_counts import EXCHANGED

WRITE, GROWS = "TensorListSetItem", "resize_if_index_out_of_bounds"
ADDS = ("Add", "AddV2")


def require_fixed(module: Module, context: Any = None) -> None:
    """Checks that no list grows.

    Args:
        module: of functional control flow, with Placeholders of full shapes.
        context: not used.

    Raises:
        PlanError: one may; the error names the node that writes to it.
    """
    if not any(map(_may_grow, (node for graph in module.graphs_with(WRITE.__eq__) for node in graph))):
        return
    answers = Answers(module)
    for graph in answers.graphs:
        for node in filter(_may_grow, graph):
            length, last = answers.length(node.inputs[0]), _largest(node.inputs[1], answers)
            if length is None or last is None or last >= length:
                where = " of function '%s'" % graph.name if isinstance(graph, Function) else ""
                raise PlanError(
                    "node '%s'%s (%s) may make its list longer, and XLA's lists keep the length that they are made "
                    "with: give the TensorArray its full size; or run the step in the session" % (
                        node.name, where, node.op)
                )  # fmt: skip


def _may_grow(node: Node) -> bool:
    return node.op == WRITE and bool(node.attrs.get(GROWS))


def _largest(value: Value, answers: Answers) -> int | None:
    """The largest value of an index: one that is known, or a counter in a loop that runs so many times at most."""
    number = answers.number(value)
    if number is not None:
        return int(number)
    node = _behind(value)
    body = node.graph
    callers = answers.callers.get(body, [])
    if len(callers) != 1 or calls.kind(callers[0]) != LOOP or node not in body.arguments:
        return None
    counter, most = _counter(callers[0], body.arguments.index(node), answers), _trips(callers[0], answers)
    return None if counter is None or most is None else counter[0] + counter[1] * (most - 1)


def _counter(loop: Node, place: int, answers: Answers) -> tuple[int, int] | None:
    """(start, step) of a loop variable that grows by a known number in each iteration; None for another."""
    body = body_of(loop)
    add = _behind(body.returned[place])
    start = answers.number(loop.inputs[place])
    if add.op not in ADDS or start is None:
        return None
    mine = [_behind(value) is body.arguments[place] for value in add.inputs]
    if not any(mine):
        return None
    step = answers.number(add.inputs[mine.index(True) - 1])  # the other one of two
    return (start, step) if step is not None and step > 0 else None


def _trips(loop: Node, answers: Answers) -> int | None:
    """How often a loop runs at most; None where its condition does not say."""
    condition = calls.functions(loop)[0]
    counts = []
    for op, left, right in _tests(condition.returned[0]):
        if left not in condition.arguments:
            continue
        counter, limit = _counter(loop, condition.arguments.index(left), answers), answers.number(right)
        if op.startswith("Less") and counter is not None and limit is not None:
            distance = (limit + op.endswith("Equal") - counter[0]) / counter[1]
            counts.append(max(math.ceil(distance), 0))
    return min(counts, default=None)


def _tests(value: Value) -> Iterator[tuple[str, Node, Value]]:
    """The comparisons that must all hold for a condition to hold: op, what is compared, with what; either way round."""
    node = _behind(value)
    if node.op == "LogicalAnd":
        for part in node.inputs:
            yield from _tests(part)
    elif node.op in EXCHANGED:
        left, right = node.inputs
        yield node.op, _behind(left), right
        yield EXCHANGED[node.op], _behind(right), left


def _behind(value: Value) -> Node:
    """The node that computes a value, behind Identity."""
    node = value.node
    while node.op == "Identity":
        node = node.inputs[0].node
    return node
