"""Masks that scores are multiplied by, as GPT-2 writes them. No TensorFlow.

    scores * b - 1e10 * (1 - b)     b: zeros and ones

has the softmax, and its gradient, of scores - 1e10 * (1 - b): what b leaves out is 0 in both, as long as a row has one
score that it leaves in.
"""

from __future__ import annotations

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.attention.matching.contents import Contents

VIEWS = frozenset(["BroadcastTo", "Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"])
BOOLEAN = frozenset([
    "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual",
])  # fmt: skip
LARGE = 1e4  # beside scores: exp(-LARGE) is 0 in each dtype


def choice_of(value: Value) -> Node | None:
    """The node of bools behind a value of zeros and ones, None for another value."""
    node = value.node
    while node.op in VIEWS:
        node = node.inputs[0].node
    return node if node.op in BOOLEAN else None


def pushes_out(value: Value, sign: float, choice: Node, contents: Contents) -> bool:
    """Whether a bias, times a sign, is 0 where a choice is 1, and far below all scores where it is 0."""
    node = value.node
    while node.op in ("Cast", "Identity"):
        node = node.inputs[0].node
    if node.op != "Mul":
        return False
    for number in (0, 1):
        factor, rest = contents.number(node.inputs[number]), node.inputs[1 - number].node
        if factor is not None and factor * sign <= -LARGE:
            return _is_opposite(rest, choice, contents)
    return False


def _is_opposite(node: Node, choice: Node, contents: Contents) -> bool:
    """Whether a node is 1 - choice."""
    while node.op in ("Cast", "Identity"):
        node = node.inputs[0].node
    return node.op == "Sub" and contents.number(node.inputs[0]) == 1 and choice_of(node.inputs[1]) is choice
