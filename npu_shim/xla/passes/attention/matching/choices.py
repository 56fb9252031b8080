"""Masks that scores are multiplied by, as GPT-2 writes them. No TensorFlow.

    scores * b - 1e10 * (1 - b)     b: zeros and ones

is 0 and then -1e10 where b is 0, whatever the scores are there: the same as tf.where(b, scores, -1e10).
"""

from __future__ import annotations

import math

from npu_shim.rewriter.ir.graph import Value
from npu_shim.xla.passes.attention.matching.contents import Contents
from npu_shim.xla.passes.attention.matching.rounding import rounded_number
from npu_shim.xla.passes.attention.matching.terms import Hidden

SAME = frozenset(["Cast", "Identity"])
VIEWS = SAME | {"BroadcastTo", "ExpandDims", "Reshape", "Squeeze"}


def root_of(value: Value) -> Value:
    """The value behind casts of zeros and ones."""
    while value.node.op in SAME:
        value = value.node.inputs[0]
    return value


def hidden_by(value: Value, dtype: str) -> Hidden:
    """What hides scores that are multiplied by zeros and ones of a dtype."""
    node = value.node
    while node.op in SAME:
        dtype, node = repr(node.attrs["SrcT"]) if node.op == "Cast" else dtype, node.inputs[0].node
    return Hidden(root_of(value), False, dtype)


def are_choices(value: Value) -> bool:
    """Whether a value is zeros and ones: bools that are cast."""
    node = value.node
    while node.op in VIEWS:
        if node.op == "Cast" and repr(node.attrs["SrcT"]) == "bool":
            return True
        node = node.inputs[0].node
    return False


def pushed(value: Value, choices: Value, dtype: str, contents: Contents) -> float | None:
    """The finite number that a value is where choices are 0, while it is 0 where they are 1; None for another value.

    Args:
        value: what is added to the chosen scores, such as 1e10 * (1 - b).
        choices: the root of b.
        dtype: of the sum.
        contents: what is known of constants.
    """
    product = root_of(value).node
    for number in (0, 1) if product.op == "Mul" else ():
        factor, rest = contents.number(product.inputs[number]), product.inputs[1 - number]
        if factor is not None and _are_opposite(rest, choices, contents):
            factor = rounded_number(factor, dtype)
            return factor if math.isfinite(factor) else None  # infinity times 0 is NaN where they are 1
    return None


def _are_opposite(value: Value, choices: Value, contents: Contents) -> bool:
    """Whether a value is 1 - choices."""
    node = root_of(value).node
    return node.op == "Sub" and contents.number(node.inputs[0]) == 1 and root_of(node.inputs[1]) is choices
