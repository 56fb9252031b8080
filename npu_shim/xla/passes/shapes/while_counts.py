"""Bounds the trip counts of functional loops by their conditions; trip_counts.py does so for those of TensorFlow 1.

A counter that starts at a, grows by b in the body, and stays below n by the condition: ceil((n - a) / b) iterations.
"""

from __future__ import annotations

import math
from typing import Iterator

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.shapes.list_sizes import Answers, body_of
from npu_shim.xla.passes.shapes.trip_counts import EXCHANGED

ADDS = ("Add", "AddV2")


def counter(loop: Node, place: int, answers: Answers) -> tuple[int, int] | None:
    """(start, step) of a loop variable that grows by a known number in each iteration; None for another."""
    body = body_of(loop)
    add = behind(body.returned[place]).node
    start = answers.number(loop.inputs[place])
    if add.op not in ADDS or start is None:
        return None
    mine = [behind(value).node is body.arguments[place] for value in add.inputs]
    if not any(mine):
        return None
    step = answers.number(add.inputs[mine.index(True) - 1])  # the other one of two
    return (start, step) if step is not None and step > 0 else None


def at_most(loop: Node, answers: Answers) -> int | None:
    """How often a loop runs at most; None where its condition does not say."""
    condition = calls.functions(loop)[0]
    counts = []
    for op, left, right in _tests(condition.returned[0]):
        if left not in condition.arguments:
            continue
        start_and_step, limit = counter(loop, condition.arguments.index(left), answers), _limit(right, answers)
        if op.startswith("Less") and start_and_step is not None and limit is not None:
            start, step = start_and_step
            counts.append(max(math.ceil((limit + op.endswith("Equal") - start) / step), 0))
    return min(counts, default=None)


def is_exact(loop: Node, answers: Answers) -> bool:
    """Whether a loop runs just as often as `at_most` says: the comparison with a known number is its condition."""
    condition = calls.functions(loop)[0]
    compared = [limit for _, left, limit in _tests(condition.returned[0]) if left in condition.arguments]
    is_one = behind(condition.returned[0]).node.op in EXCHANGED
    return is_one and any(answers.number(_from_outside(limit, answers)) is not None for limit in compared)


def _tests(value: Value) -> Iterator[tuple[str, Node, Value]]:
    """The comparisons that must all hold for a condition to hold: op, what is compared, with what; either way round."""
    node = behind(value).node
    if node.op == "LogicalAnd":
        for part in node.inputs:
            yield from _tests(part)
    elif node.op in EXCHANGED:
        left, right = node.inputs
        yield node.op, behind(left).node, right
        yield EXCHANGED[node.op], behind(right).node, left


def _limit(value: Value, answers: Answers) -> int | None:
    """An upper bound of what a counter is compared with."""
    node = behind(value).node
    if node.op == "Minimum":
        known = [limit for limit in (_limit(part, answers) for part in node.inputs) if limit is not None]
        return min(known, default=None)
    number: int | None = answers.number(value)
    return _behind_loop(_from_outside(value, answers), answers) if number is None else number


def _from_outside(value: Value, answers: Answers) -> Value:
    """The value that a loop's condition takes, before the loop where no iteration changes it."""
    node = behind(value).node
    callers = answers.callers.get(node.graph, [])
    if len(callers) != 1 or node not in node.graph.arguments:
        return value
    place, body = node.graph.arguments.index(node), body_of(callers[0])
    is_unchanged = behind(body.returned[place]).node is body.arguments[place]
    return callers[0].inputs[place] if is_unchanged else value


def _behind_loop(value: Value, answers: Answers) -> int | None:
    """The largest value of a counter behind its loop, to which a gradient's loop counts; None for another value."""
    value = behind(value)
    loop = value.node
    if calls.kind(loop) != LOOP:
        return None
    start_and_step, most = counter(loop, value.index, answers), at_most(loop, answers)
    return None if start_and_step is None or most is None else start_and_step[0] + start_and_step[1] * most
