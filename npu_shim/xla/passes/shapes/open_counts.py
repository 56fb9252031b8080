"""Finds sizes that XLA bounds wrongly where they are computed of a number of rows that the data decide.

XLA gives a tensor the largest size that it may have, and computes that from the largest numbers of rows. Sums and
differences it computes rightly; but

    n = tf.shape(boolean_mask(x))[0], at most 6
    tf.range(8 + n * -1)         has 2 elements, for every n          tf.range(6, n, -1)         none
    tf.range(n, 7)               begins too late, or is cut short     tf.tile([1, 2], [6 - n])   half as many

Source: TensorFlow 2.15.1 and 2.21, tried one by one.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.shapes.compile_time import SHAPES, STRICT

SIZES = {**STRICT, "Slice": (1, 2), "StridedSlice": (1, 2), "TopKV2": (1,)}  # op -> inputs that say sizes
FALLING = frozenset(["Neg", "Sub"])
PRODUCTS = frozenset(["Div", "Mul", "Pow", "Prod", "RealDiv", "Square", "SquaredDifference", "TruncateDiv"])
# ops whose numbers are none of their inputs': places of elements, and truth values
OF_NONE = frozenset([
    "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual",
    "Where",
])  # fmt: skip
# ops whose result is made of their first input; the others say which part, or along which axis
OF_FIRST = frozenset([
    "ExpandDims", "Gather", "GatherV2", "Max", "Min", "Prod", "Reshape", "Slice", "Squeeze", "StridedSlice", "Sum",
])  # fmt: skip


def problem(node: Node, view: Any) -> tuple[Value, str] | None:
    """Returns (an input, what XLA does with it) of a node whose size XLA bounds wrongly, else None.

    Args:
        node: one of the view's graph.
        view: `dynamic_shapes.View`.
    """
    for size in (node.inputs[number] for number in SIZES.get(node.op, ()) if number < len(node.inputs)):
        if view.constant(size) is not None or not view.depends_on_open(size):
            continue
        if node.op == "Range" and not _is_rising(node, size, view):
            return size, "is bounded from its first element up to the most rows that there may be"
        if node.op == "Tile" and not _repeats_single(node, view):
            return size, "has as many rows as it has copies"
        if any(_may_be_negative(view, factor) for factor in _factors(size)):
            return size, "is bounded by the most rows that there may be, though a factor may be negative"
    return None


def _is_rising(node: Node, size: Value, view: Any) -> bool:
    """Whether it is the limit alone that is computed, and the range rises; XLA itself refuses a computed step."""
    start, limit, step = node.inputs
    by = view.constant(step)
    return by is None or (size is limit and bool((by > 0).all()) and not view.depends_on_open(start))


def _repeats_single(node: Node, view: Any) -> bool:
    """Whether each axis whose new size is open has size 1 before."""
    before, after = view.static_shape(node.inputs[0]), view.static_shape(node.value)
    if before.rank is None or after.rank is None:
        return False
    return all(size is not None or was == 1 for was, size in zip(before.as_list(), after.as_list()))


def _upstream(value: Value) -> Iterator[Node]:
    """The nodes that a size is computed of, up to shapes of tensors and places of elements, which are not negative."""
    pending, seen = [value.node], set[Node]()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            yield node
            operands = [] if node.op in SHAPES or node.op in OF_NONE else _operands(node)
            pending += [operand.node for operand in operands]


def _operands(node: Node) -> Sequence[Value]:
    inputs = node.inputs
    return inputs[:1] if node.op in OF_FIRST else inputs[:-1] if node.op == "ConcatV2" else inputs


def _factors(size: Value) -> Iterator[Value]:
    """What is multiplied, or divided, on the way to a size."""
    for node in _upstream(size):
        if node.op in PRODUCTS:
            yield from [node.value] if node.op == "SquaredDifference" else _operands(node)


def _may_be_negative(view: Any, factor: Value) -> bool:
    """Whether a factor is a difference, or has a negative constant."""
    for node in _upstream(factor):
        if node.op in FALLING or node.op == "SquaredDifference":
            return True
        constant = view.constant(node.value)
        if constant is not None and bool((constant < 0).any()):
            return True
    return False
