"""Recognizes scripts that scale their losses by themselves.

An optimizer whose class, or a base of it, or an optimizer that it wraps, is named as loss scaling is. Or a factor that
the loss is multiplied by and the gradients are divided by: the same constant, variable or placeholder.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, NamedTuple

import tensorflow.compat.v1 as tf

# LossScaleOptimizer of contrib, Keras and npu_shim, MixedPrecisionLossScaleOptimizer, NPULossScaleOptimizer;
# MixedPrecisionOptimizerWrapper of OpenSeq2Seq
NAMED_AS_SCALING = re.compile("LossScal|MixedPrecision|AutomaticLossScaler")
PASSES_ON = {"Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "ReadVariableOp", "StopGradient", "Enter"}
LOSS_PASSES_ON = PASSES_ON | {"Sum", "Mean", "Neg", "CheckNumerics"}
DIVISIONS = ("RealDiv", "Div")
CLOSE = 1e-3  # reciprocals are rounded


class Factor(NamedTuple):
    """A scalar that something is multiplied by.

    Attributes:
        name: str, the op that gives it; "" for a constant.
        value: float, the constant; or the exponent of what the op gives, 1 or -1.
    """

    name: str
    value: float


def scales_itself(optimizer: Any) -> bool:
    """Whether an optimizer, or one that it wraps, scales losses."""
    seen, ahead = set(), [optimizer]
    while ahead:
        current = ahead.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if any(NAMED_AS_SCALING.search(cls.__name__) for cls in type(current).__mro__):
            return True
        ahead += [value for value in vars(current).values() if hasattr(type(value), "apply_gradients")]
    return False


def divided_out(calls: Iterable[Any], factors: Iterable[Factor]) -> Factor | None:
    """Returns a factor of the calls' losses that is divided out of the gradients, or None.

    Args:
        calls: made.Call.
        factors: what the script multiplies the gradients by.
    """
    by_hand = list(factors)
    for call in calls:
        for factor in _of_losses(call):
            if any(_cancel(factor, other) for other in by_hand):
                return factor
    return None


def factors_of(op: Any) -> list[Factor]:
    """Returns the scalars that an op multiplies by or divides by: none, one or two."""
    if op.type == "Mul":
        return [_factor(tensor) for tensor in op.inputs if _is_scalar(tensor)]
    if op.type in DIVISIONS and _is_scalar(op.inputs[1]):
        return [_inverse(_factor(op.inputs[1]))]
    return []


def is_scaled(op: Any, number: int) -> bool:
    """Whether an input of an op is what the op's factors scale, and not a factor: of two scalars, the first is."""
    taken = op.inputs[number]
    if taken.dtype.is_bool or taken.dtype.is_integer:
        return False  # a predicate, an index
    is_factor = (op.type == "Mul" and _is_scalar(taken)) or (op.type in DIVISIONS and number == 1)
    return not is_factor or (number == 0 and all(map(_is_scalar, op.inputs)))


def _of_losses(call) -> Iterator[Factor]:
    for start in call.starts:
        if start is not None and not isinstance(start, tf.IndexedSlices):
            start = tf.convert_to_tensor(start)
            if _is_scalar(start):
                yield _factor(start)
    for loss in call.losses:
        op = loss.op
        while op.type in LOSS_PASSES_ON or factors_of(op):
            factors = factors_of(op)
            yield from factors
            constants = [_constant(tensor) is not None for tensor in op.inputs]
            op = op.inputs[constants.index(False) if False in constants[:2] else 0].op


def _cancel(one, other):
    if one.name or other.name:
        return one.name == other.name and one.value == -other.value
    return abs(one.value) > 1.0 + CLOSE and abs(one.value * other.value - 1.0) < CLOSE  # half a loss is no scale


def _factor(tensor):
    """Returns the scalar as its source gives it: a read of a variable is the variable."""
    value = _constant(tensor)
    if value is not None:
        return Factor("", value)
    op = tensor.op
    if op.type in PASSES_ON and op.inputs:
        return _factor(op.inputs[0])
    if op.type in ("Reciprocal", "Inv"):
        return _inverse(_factor(op.inputs[0]))
    if op.type in DIVISIONS and _constant(op.inputs[0]) == 1.0:
        return _inverse(_factor(op.inputs[1]))
    return Factor(op.name, 1.0)


def _inverse(factor):
    if factor.name:
        return factor._replace(value=-factor.value)
    return factor._replace(value=1.0 / factor.value if factor.value else 0.0)


def _is_scalar(tensor):
    return tensor.shape.ndims == 0 and tensor.dtype.is_floating


def _constant(tensor):
    if not _is_scalar(tensor):
        return None
    value = tf.get_static_value(tensor)
    return None if value is None else float(value)
