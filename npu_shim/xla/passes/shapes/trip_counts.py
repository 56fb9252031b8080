"""Bounds the trip counts of TensorFlow 1's loops by their conditions, at compile time.

    while i < n and ...:    i starts at a, grows by b, n is a constant, comes from shapes, or is Minimum(.., n)
    at most ceil((n - a) / b) iterations

A counter may also count down, stand on either side of the comparison, and have any numeric dtype.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import data, source_of

PASSES_ON = ("Identity", "Enter", "Switch")
# comparison -> the equivalent one with its inputs exchanged
EXCHANGED = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}
GROWS = {"Add": 1, "AddV2": 1, "Sub": -1}


def at_most(graph_def: Any) -> dict[str, int]:
    """Returns frame name -> largest trip count, for the loops whose conditions bound it.

    Args:
        graph_def: tf.GraphDef with v1 loops; known shapes are constants (static_shapes.py).
    """
    nodes = {node.name: node for node in graph_def.node}
    all_tests = [test for node in graph_def.node if node.op == "LoopCond" for test in tests(node.input[0], nodes)]
    values = _values({text for test in all_tests for text in test.texts}, nodes)
    counts = _counts_of(all_tests, values)
    others = [test for test in all_tests if test.frame not in counts]
    most = {test.start: _most(test.start, nodes, counts) for test in others}
    values.update((text, value) for text, value in most.items() if value is not None)
    return {**_counts_of([test for test in others if test.counts_down], values), **counts}


def frame_of_index(text: str, nodes: Mapping[str, Any]) -> str | None:
    """Returns the frame in which a tensor is 0 in the first iteration and one more in each; None if it is not that."""
    merge = _behind(text, nodes)
    if not _counts(merge, nodes):
        return None
    enter = nodes[source_of(merge.input[0])]
    add = nodes[source_of(nodes[source_of(merge.input[1])].input[0])]
    first, second = add.input[:2]
    step = second if _behind(first, nodes).name == merge.name else first
    known = _values([enter.input[0], step], nodes)
    is_index = add.op != "Sub" and (known.get(enter.input[0]), known.get(step)) == (0, 1)
    return enter.attr["frame_name"].s.decode() if is_index else None


def _counts_of(tests, values):
    """Frame name -> largest trip count, by the tests that bound it."""
    counts = {}
    for test in tests:
        count = test.count(values)
        if count is not None:
            counts[test.frame] = min(count, counts.get(test.frame, count))
    return counts


def _most(text, nodes, counts):
    """The largest value of a counter behind its loop, from where a gradient's loop counts down; None if unknown."""
    node = nodes[source_of(text)]
    merge = _behind(node.input[0], nodes) if node.op == "Exit" else node
    if node.op != "Exit" or not _counts(merge, nodes):
        return None
    enter = nodes[source_of(merge.input[0])]
    add = nodes[source_of(nodes[source_of(merge.input[1])].input[0])]
    first, second = add.input[:2]
    step = second if _behind(first, nodes).name == merge.name else first
    known = _values([enter.input[0], step], nodes)
    count = counts.get(enter.attr["frame_name"].s.decode())
    if count is None or len(known) < 2 or add.op == "Sub" or known[step] < 0:
        return None
    return known[enter.input[0]] + count * known[step]


class _Test:
    """One comparison of a counter in a loop's condition.

    Attributes:
        frame: name of the loop's frame.
        start: tensor that the counter starts at.
        counter: the counter's Merge.
        texts: tensors whose values determine the trip count.
    """

    def __init__(self, op, counter, limit, nodes):
        start, following = (nodes[source_of(text)] for text in counter.input[:2])
        add = nodes[source_of(following.input[0])]
        self.frame = start.attr["frame_name"].s.decode()
        self._op, self._sign, self.start, self.counter = op, GROWS[add.op], start.input[0], counter
        first, second = add.input[:2]
        self._step = second if _behind(first, nodes).name == counter.name else first
        self._limits = _alternatives(limit, nodes)
        self.texts = [self.start, self._step, *self._limits]

    @property
    def counts_down(self) -> bool:
        """Whether a larger start gives more iterations."""
        return self._op.startswith("Greater")

    def count(self, values: Mapping[str, Any]) -> int | None:
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


def tests(text: str, nodes: Mapping[str, Any]) -> list[Any]:
    """Returns the comparisons of counters that must all hold for a condition to hold: tensor, nodes by name."""
    node = nodes[source_of(text)]
    if node.op in ("LogicalAnd", "Identity"):
        return [test for part in node.input if part[0] != "^" for test in tests(part, nodes)]
    if node.op not in EXCHANGED:
        return []
    left, right = (_behind(part, nodes) for part in node.input[:2])
    if _counts(left, nodes):
        return [_Test(node.op, left, node.input[1], nodes)]
    return [_Test(EXCHANGED[node.op], right, node.input[0], nodes)] if _counts(right, nodes) else []


def _counts(merge, nodes):
    """Whether a node is a loop variable that is incremented in every iteration."""
    if merge.op != "Merge" or nodes[source_of(merge.input[1])].op != "NextIteration":
        return False
    add = nodes[source_of(nodes[source_of(merge.input[1])].input[0])]
    if add.op not in GROWS or nodes[source_of(merge.input[0])].op != "Enter":
        return False
    parts = [_behind(part, nodes).name == merge.name for part in add.input[:2]]
    return parts[0] or (parts[1] and add.op != "Sub")


def _alternatives(text, nodes):
    """Tensors that are each an upper bound of the limit `text`."""
    node = _behind(text, nodes)
    if node.op != "Minimum":
        return [text]
    return [alternative for part in node.input[:2] for alternative in _alternatives(part, nodes)]


def _behind(text, nodes):
    """The node whose value a tensor has, through Identity, Enter and Switch."""
    node = nodes[source_of(text)]
    while node.op in PASSES_ON:
        node = nodes[source_of(node.input[0])]
    return node


def _values(texts, nodes):
    """Maps each scalar tensor that depends only on constants to its value."""
    constant = sorted(text for text in texts if _is_constant(text, nodes))
    if not constant:
        return {}
    graph_def, pending, done = tf.GraphDef(), [source_of(text) for text in constant], set()
    while pending:
        name = pending.pop()
        if name in done:
            continue
        done.add(name)
        taken = data(nodes[name])
        node = graph_def.node.add(name=name, op=nodes[name].op)
        if node.op in PASSES_ON:
            node.op, taken = "Identity", taken[:1]
            node.attr["T"].CopyFrom(nodes[name].attr["T"])
        else:
            for attr, value in nodes[name].attr.items():
                if not attr.startswith("_"):
                    node.attr[attr].CopyFrom(value)
        node.input.extend(source_of(text) if nodes[source_of(text)].op in PASSES_ON else text for text in taken)
        pending += map(source_of, taken)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        named = {t: source_of(t) + ":0" if nodes[source_of(t)].op in PASSES_ON or ":" not in t else t for t in constant}
    with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        numbers = session.run(named)
    return {text: value.item() for text, value in numbers.items() if value.shape == ()}


def _is_constant(text, nodes):
    """Whether a tensor depends only on constants, through deterministic ops."""
    ops, pending, seen = tf_internals.op_defs(), [source_of(text)], set()
    while pending:
        node = nodes[pending.pop()]
        if node.name in seen or node.op == "Const":
            continue
        seen.add(node.name)
        data = [source_of(part) for part in node.input if part[0] != "^"]
        if node.op in PASSES_ON:
            data = data[:1]
        elif not data or node.op not in ops or ops[node.op].is_stateful or node.op == "Merge":
            return False
        pending += data
    return True
