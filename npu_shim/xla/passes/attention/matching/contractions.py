"""Products of two tensors as letters: which dimensions are shared, and which are summed. No TensorFlow.

    BatchMatMulV2(x, y) adj_y     abij, abkj -> abik
    Einsum(x, y)                  BTNH, BFNH -> BNFT

for tensors of four dimensions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from npu_shim.rewriter.ir.graph import Node, Value

BATCHED = frozenset(["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"])
OPS = BATCHED | {"Einsum"}
EQUATION = re.compile(r"^([A-Za-z]+),([A-Za-z]+)->([A-Za-z]+)$")


class Operand(NamedTuple):
    """A value, and a letter for each of its dimensions."""

    value: Value
    axes: str


class Contraction(NamedTuple):
    """A product of two values.

    Attributes:
        node: the Node.
        first, second: the Operands.
        result: the letters of the result; those of the operands that are not among them are summed.
    """

    node: Node
    first: Operand
    second: Operand
    result: str

    def other(self, value: Value) -> tuple[Operand, Operand]:
        """(the Operand that is a value, the other one)."""
        return (self.first, self.second) if self.first.value is value else (self.second, self.first)


def of_node(node: Node, rank: int | None) -> Contraction | None:
    """The Contraction that a node computes; None if it is another op, or sums or repeats what letters do not say.

    Args:
        node: a Node.
        rank: of the node's inputs.
    """
    equation = _equation(node, rank)
    if equation is None or len(node.inputs) != 2:
        return None
    first, second, result = equation
    if any(len(set(axes)) != len(axes) for axes in equation) or not set(result) <= {*first, *second}:
        return None
    if set(first) ^ set(second) != set(result) & (set(first) ^ set(second)):  # summed within one operand
        return None
    return Contraction(node, Operand(node.inputs[0], first), Operand(node.inputs[1], second), result)


def _equation(node: Node, rank: int | None) -> tuple[str, str, str] | None:
    if node.op in BATCHED and rank is not None and 3 <= rank <= 8:
        batch = "abcdef"[: rank - 2]
        turned = [node.attrs.get(name, False) for name in ("adj_x", "adj_y")]
        return batch + ("ji" if turned[0] else "ij"), batch + ("kj" if turned[1] else "jk"), batch + "ik"
    if node.op == "Einsum" and len(node.inputs) == 2:
        text = EQUATION.match(node.attrs["equation"].decode().replace(" ", ""))
        return (text[1], text[2], text[3]) if text else None
    return None
