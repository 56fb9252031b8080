"""Bounds the trip counts of TensorFlow 1's loops by their conditions, at compile time.

    while i < n and ...:    i starts at a, grows by b, n is a constant, comes from shapes, or is Minimum(.., n)
    at most ceil((n - a) / b) iterations

A counter may also count down, stand on either side of the comparison, and have any numeric dtype.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node, Value

PASSES_ON = ("Identity", "Enter", "Switch")
# comparison -> the equivalent one with its inputs exchanged
EXCHANGED = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}
GROWS = {"Add": 1, "AddV2": 1, "Sub": -1}


def at_most(graph: Graph) -> dict[str, int]:
    """Returns frame name -> largest trip count, for the loops whose conditions bound it.

    Args:
        graph: has v1 loops; known shapes are constants (static_shapes.py).
    """
    all_tests = [test for node in graph if node.op == "LoopCond" for test in tests(node.inputs[0])]
    values = _numbers({value for test in all_tests for value in test.values})
    counts = _counts_of(all_tests, values)
    others = [test for test in all_tests if test.frame not in counts]
    most = {test.start: _most(test.start, counts) for test in others}
    values.update((value, number) for value, number in most.items() if number is not None)
    return {**_counts_of([test for test in others if test.counts_down], values), **counts}


def frame_of_index(value: Value) -> str | None:
    """Returns the frame in which a value is 0 in the first iteration and one more in each; None if it is not that."""
    merge = _behind(value)
    if not _counts(merge):
        return None
    enter, add, step = _parts(merge)
    known = _numbers([enter.inputs[0], step])
    is_index = add.op != "Sub" and (known.get(enter.inputs[0]), known.get(step)) == (0, 1)
    return _frame(enter) if is_index else None


def _counts_of(tests, values):
    """Frame name -> largest trip count, by the tests that bound it."""
    counts = {}
    for test in tests:
        count = test.count(values)
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
    if count is None or len(known) < 2 or add.op == "Sub" or known[step] < 0:
        return None
    return known[enter.inputs[0]] + count * known[step]


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
        self._op, self._sign = op, GROWS[add.op]
        self._limits = _alternatives(limit)
        self.values = [self.start, self._step, *self._limits]

    @property
    def counts_down(self) -> bool:
        """Whether a larger start gives more iterations."""
        return self._op.startswith("Greater")

    def count(self, values: Mapping[Value, Any]) -> int | None:
        """Returns the largest trip count, or None if the values do not bound it."""
        limits = [values[text] for text in self._limits if text in values]
        if self.start not in values or self._step not in values or not limits:
            return None
        start, step, limit = values[self.start], self._sign * values[self._step], min(limits)
        if self._op.startswith("Greater"):
            start, step, limit = -start, -step, -limit
        if step <= 0:
            return None
        distance = (limit - start) / step
        return max(math.floor(distance) + 1 if self._op.endswith("Equal") else math.ceil(distance), 0)


def tests(value: Value) -> list[Any]:
    """Returns the comparisons of counters that must all hold for a condition to hold."""
    node = value.node
    if node.op in ("LogicalAnd", "Identity"):
        return [test for part in node.inputs for test in tests(part)]
    if node.op not in EXCHANGED:
        return []
    left, right = map(_behind, node.inputs)
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


def _alternatives(limit: Value) -> list[Value]:
    """Values that are each an upper bound of a limit."""
    node = _behind(limit)
    return [value for part in node.inputs for value in _alternatives(part)] if node.op == "Minimum" else [limit]


def _behind(value: Value) -> Node:
    """The node that computes a value, behind Identity, Enter and Switch."""
    node: Node = behind(value, PASSES_ON).node
    return node


def _numbers(values: Iterable[Value]) -> dict[Value, Any]:
    """Maps each scalar that depends only on constants to its number."""
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
    return {value: number.item() for value, number in numbers.items() if number.shape == ()}


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
