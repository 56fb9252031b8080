"""Dropout's mask, as TensorFlow and scripts write it. No TensorFlow.

    u >= rate          GreaterEqual(u, 0.1), perhaps behind a Cast
    floor(keep + u)    Floor(Add(0.9, u))

where u is uniform in [0, 1).
"""

from __future__ import annotations

from typing import NamedTuple

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.attention.matching.contents import Contents
from npu_shim.xla.passes.attention.matching.misses import Miss

DRAW = "StatelessRandomUniformV2"
STATEFUL = "RandomUniform"
SAME = frozenset(["Cast", "Identity"])
ABOVE, BELOW = frozenset(["Greater", "GreaterEqual"]), frozenset(["Less", "LessEqual"])


class Mask(NamedTuple):
    """A mask of zeros and ones.

    Attributes:
        draw: the node that draws the numbers.
        keep: the probability of a one.
        nodes: the nodes from the draw to the mask.
    """

    draw: Node
    keep: float
    nodes: tuple[Node, ...]

    @property
    def key(self) -> Value:
        """Where the numbers of a stateless draw start: uint64 [1]."""
        return self.draw.inputs[1]

    @property
    def counter(self) -> Value:
        """The number of the step: uint64 [2], in the second place."""
        return self.draw.inputs[2]


class _Line(NamedTuple):
    """slope * u + offset, of the numbers u of a draw."""

    draw: Node
    slope: float
    offset: float
    nodes: tuple[Node, ...]


def mask_of(value: Value, contents: Contents) -> Mask | None:
    """The Mask that a value is, None if it is something else.

    Raises:
        Miss: it is a mask of numbers that depend on no step.
    """
    node = value.node
    if node.op in SAME:
        mask = mask_of(node.inputs[0], contents)
        return mask._replace(nodes=(*mask.nodes, node)) if mask else None
    if node.op == "LogicalNot":
        mask = mask_of(node.inputs[0], contents)
        return mask._replace(keep=1 - mask.keep, nodes=(*mask.nodes, node)) if mask else None
    if node.op == "Floor":
        line = _line(node.inputs[0], contents)
        return Mask(line.draw, line.offset, (*line.nodes, node)) if line and line.slope == 1 else None
    if node.op in ABOVE | BELOW:
        return _compared(node, contents)
    return None


def _compared(node: Node, contents: Contents) -> Mask | None:
    for number in (0, 1):
        line, bound = _line(node.inputs[number], contents), contents.number(node.inputs[1 - number])
        if line and line.slope > 0:
            if bound is None:
                raise Miss("the rate of its dropout, '%s', is no constant" % node.inputs[1 - number], node)
            below = (bound - line.offset) / line.slope
            keeps_above = (node.op in ABOVE) == (number == 0)
            return Mask(line.draw, 1 - below if keeps_above else below, (*line.nodes, node))
    return None


def _line(value: Value, contents: Contents) -> _Line | None:
    node = value.node
    if node.op in (DRAW, STATEFUL):
        return _Line(node, 1.0, 0.0, (node,))
    if node.op in SAME:
        line = _line(node.inputs[0], contents)
        return line._replace(nodes=(*line.nodes, node)) if line else None
    if node.op not in ("Add", "AddV2", "Sub", "Mul"):
        return None
    for number in (0, 1):
        constant = contents.number(node.inputs[1 - number])
        line = _line(node.inputs[number], contents) if constant is not None else None
        if line and constant is not None and not (node.op == "Sub" and number):
            return _moved(line, node, constant)
    return None


def _moved(line: _Line, node: Node, constant: float) -> _Line:
    nodes = (*line.nodes, node)
    if node.op == "Mul":
        return line._replace(slope=line.slope * constant, offset=line.offset * constant, nodes=nodes)
    return line._replace(offset=line.offset + (-constant if node.op == "Sub" else constant), nodes=nodes)
