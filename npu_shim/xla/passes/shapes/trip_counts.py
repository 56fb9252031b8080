"""Bounds the trip counts of TensorFlow 1's loops by their conditions, at compile time.

    while i < n and ...:    i starts at a, grows by b, n is a constant, comes from shapes, or is Minimum(.., n)
    at most ceil((n - a) / b) iterations

A counter may also count down (where n is Maximum(.., n)), stand on either side of the comparison, and be an integer or
float32 or float64: floats are added up as the loop adds them, since 0.1 + 0.1 + .. passes 2.5 later than 25 times 0.1.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.tables.dtypes import NUMBERS

PASSES_ON = ("Identity", "Enter", "Switch")
# comparison -> the equivalent one with its inputs exchanged
EXCHANGED = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}
GROWS = {"Add": operator.add, "AddV2": operator.add, "Sub": operator.sub}
HOLDS = {
    "Less": operator.lt, "LessEqual": operator.le, "Greater": operator.gt, "GreaterEqual": operator.ge,
}  # fmt: skip
FLOATS = (np.float32, np.float64)  # XLA may add narrower ones in another way
INTEGERS = frozenset(NUMBERS[name] for name in ("int32", "int64"))
MOST_ADDED = 100_000  # iterations of a loop whose counter is a float


def at_most(graph: Graph) -> dict[str, int]:
    """Returns frame name -> largest trip count, for the loops whose conditions bound it.

    Args:
        graph: has v1 loops; known shapes are constants (static_shapes.py).
    """
    all_tests = [test for node in graph if node.op == "LoopCond" for test in tests(node.inputs[0])]
    values = _numbers({value for test in all_tests for value in test.values})
    counts = _counts_of(all_tests, values, {})
    others = [test for test in all_tests if test.frame not in counts and test.counts_down]
    most = {test.start: _most(test.start, counts) for test in others}
    return {**_counts_of(others, values, {start: last for start, last in most.items() if last is not None}), **counts}


def exact(graph: Graph) -> set[str]:
    """Returns the frames of the loops that run just as often as `at_most` says: a comparison of integers decides it."""
    conditions = [node.inputs[0] for node in graph if node.op == "LoopCond"]
    alone = [test for value in conditions if _behind(value).op in EXCHANGED for test in tests(value)]
    return {test.frame for test in alone if test.is_exact}


def frame_of_index(value: Value) -> str | None:
    """Returns the frame in which a value is 0 in the first iteration and one more in each; None if it is not that."""
    merge = _behind(value)
    if not _counts(merge):
        return None
    enter, add, step = _parts(merge)
    known = _numbers([enter.inputs[0], step])
    is_index = add.op != "Sub" and (known.get(enter.inputs[0]), known.get(step)) == (0, 1)
    return _frame(enter) if is_index else None


def _counts_of(tests, values, starts):
    """Frame name -> largest trip count, by the tests that bound it; `starts` are upper bounds of where they start."""
    counts = {}
    for test in tests:
        count = test.count(values, starts)
        if count is not None:
            counts[test.frame] = min(count, counts.get(test.frame, count))
    return counts


def _most(value, counts):
    """The largest value of a counter behind its loop, from where a gradient's loop counts down; None if unknown."""
    node = value.node
    merge = _behind(node.inputs[0]) if node.op == "Exit" else node
    if node.op != "Exit" or not _counts(merge):
        return None
    enter, add, step = _parts(merge)
    known, count = _numbers([enter.inputs[0], step]), counts.get(_frame(enter))
    if count is None or len(known) < 2 or add.op == "Sub" or not _is_integer(known[step]) or known[step] < 0:
        return None
    return int(known[enter.inputs[0]]) + count * int(known[step])


def _parts(merge: Node) -> tuple[Node, Node, Value]:
    """Of a counter's Merge: its Enter, what adds to it, and what is added."""
    enter, following = (value.node for value in merge.inputs[:2])
    add = following.inputs[0].node
    first, second = add.inputs[:2]
    return enter, add, second if _behind(first) is merge else first


def _frame(enter: Node) -> str:
    frame: str = enter.attrs["frame_name"].decode()
    return frame


class _Test:
    """One comparison of a counter in a loop's condition.

    Attributes:
        frame: name of the loop's frame.
        start: the value that the counter starts at.
        counter: the counter's Merge.
        values: those that determine the trip count.
    """

    def __init__(self, op: str, counter: Node, limit: Value) -> None:
        enter, add, self._step = _parts(counter)
        self.frame, self.start, self.counter = _frame(enter), enter.inputs[0], counter
        self._op, self._adds = op, GROWS[add.op]
        self._limits = _alternatives(limit, "Maximum" if self.counts_down else "Minimum")
        self.values = [self.start, self._step, *self._limits]

    @property
    def counts_down(self) -> bool:
        """Whether a larger start gives more iterations."""
        return self._op.startswith("Greater")

    @property
    def is_exact(self) -> bool:
        """Whether the count, where it is known, is the trip count if no other test ends the loop."""
        return len(self._limits) == 1 and self.counter.attrs["T"] in INTEGERS and _behind(self.start).op != "Exit"

    def count(self, values: Mapping[Value, Any], starts: Mapping[Value, int]) -> int | None:
        """Returns the largest trip count, or None if the values do not bound it.

        Args:
            values: numbers (NumPy's) that are known.
            starts: upper bounds of values that loops start at; they bound how often one that counts down runs.
        """
        limits = [values[value] for value in self._limits if value in values]
        start = values.get(self.start, starts.get(self.start))
        if start is None or self._step not in values or not limits:
            return None
        if self.start not in values and not _is_integer(values[self._step]):
            return None  # floats that start lower may meet the limit later
        limit = max(limits) if self.counts_down else min(limits)
        return iterations(self._op, self._adds, start, values[self._step], limit)


def iterations(op: str, adds: Callable[[Any, Any], Any], start: Any, step: Any, limit: Any) -> int | None:
    """Returns how often `while op(i, limit): i = adds(i, step)` runs, None if that is not known or has no end.

    Args:
        op: a key of HOLDS.
        adds: operator.add or operator.sub.
        start: what i is at first; for integers any int.
        step: number of NumPy, whose dtype i has.
        limit: likewise.
    """
    sign = -1 if op.startswith("Greater") else 1
    if sign * adds(0, step.item()) <= 0:
        return None
    if _is_integer(step):
        return _of_integers(op, int(start), int(adds(0, int(step))), int(limit), np.iinfo(step.dtype))
    return _of_floats(HOLDS[op], adds, start, step, limit) if type(step) in FLOATS else None


def _of_integers(op: str, start: int, step: int, limit: int, holds: Any) -> int | None:
    sign = 1 if step > 0 else -1
    distance = sign * (limit - start) + op.endswith("Equal")
    count = max(-(-distance // abs(step)), 0)
    return count if holds.min <= start + count * step <= holds.max else None  # else it wraps before the limit


def _of_floats(holds: Any, adds: Any, counter: Any, step: Any, limit: Any) -> int | None:
    for count in range(MOST_ADDED):
        if not holds(counter, limit):
            return count
        counter = adds(counter, step)
    return None


def tests(value: Value) -> list[Any]:
    """Returns the comparisons of counters that must all hold for a condition to hold."""
    node = value.node
    if node.op in ("LogicalAnd", "Identity"):
        return [test for part in node.inputs for test in tests(part)]
    if node.op not in EXCHANGED:
        return []
    left, right = map(_of_this_loop, node.inputs)
    if _counts(left):
        return [_Test(node.op, left, node.inputs[1])]
    return [_Test(EXCHANGED[node.op], right, node.inputs[0])] if _counts(right) else []


def _counts(merge: Node) -> bool:
    """Whether a node is a loop variable that is incremented in every iteration."""
    if merge.op != "Merge" or merge.inputs[1].node.op != "NextIteration":
        return False
    add = merge.inputs[1].node.inputs[0].node
    if add.op not in GROWS or merge.inputs[0].node.op != "Enter":
        return False
    parts = [_behind(part) is merge for part in add.inputs]
    return parts[0] or (parts[1] and add.op != "Sub")


def _alternatives(limit: Value, op: str) -> list[Value]:
    """Values that are each a bound of a limit: of what a Minimum takes, each is an upper one, of a Maximum a lower."""
    node = _behind(limit)
    return [value for part in node.inputs for value in _alternatives(part, op)] if node.op == op else [limit]


def _of_this_loop(value: Value) -> Node:
    """The node that computes a value in its loop: the counter of a loop around it, which enters, bounds that alone."""
    node: Node = behind(value, ("Identity", "Switch")).node
    return node


def _is_integer(number: Any) -> bool:
    return isinstance(number, np.integer)


def _behind(value: Value) -> Node:
    """The node that computes a value, behind Identity, Enter and Switch."""
    node: Node = behind(value, PASSES_ON).node
    return node


def _numbers(values: Iterable[Value]) -> dict[Value, Any]:
    """Maps each scalar that depends only on constants to its number, NumPy's of its dtype."""
    needed = {value: nodes for value, nodes in ((value, _needed(value)) for value in values) if nodes is not None}
    if not needed:
        return {}
    graph_def = tf.GraphDef()
    for node in dict.fromkeys(node for nodes in needed.values() for node in nodes):
        proto = graphdef.written(node, graph_def.node.add())
        proto.input[:] = map(_alone, _taken(node))
        kept = ("T",) if node.op in PASSES_ON else [name for name in proto.attr if name[0] != "_"]
        proto.op = "Identity" if node.op in PASSES_ON else node.op
        proto.ClearField("device")
        for name in set(proto.attr).difference(kept):
            del proto.attr[name]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    named = {value: _alone(value) if ":" in _alone(value) else _alone(value) + ":0" for value in needed}
    with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        numbers = session.run(named)
    return {value: number for value, number in numbers.items() if number.shape == ()}


def _taken(node: Node) -> Sequence[Value]:
    return node.inputs[:1] if node.op in PASSES_ON else node.inputs


def _alone(value: Value) -> str:
    """A value as inputs name it where what passes values on is an Identity."""
    return value.node.name if value.node.op in PASSES_ON else str(value)


def _needed(value: Value) -> dict[Node, None] | None:
    """What a value depends on; None if that is more than constants and deterministic ops."""
    needed: dict[Node, None] = {}
    for node in reached([value.node], lambda node: [taken.node for taken in _taken(node)]):
        needed[node] = None
        definition = registered(node.op)
        is_pure = definition is not None and not definition.is_stateful and node.op != "Merge"
        if node.op != "Const" and not (is_pure and node.inputs):
            return None
    return needed
