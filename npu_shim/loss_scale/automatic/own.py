"""Recognizes scripts that scale their losses by themselves.

An optimizer whose class, or a base of it, or an optimizer that it wraps, is named as loss scaling is. Or a factor that
the loss is multiplied by and the gradients are divided by: the same constant, variable or placeholder.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph import factors
from npu_shim.rewriter.graph.factors import DIVISIONS, PASSES_ON, Factor, Graph

# LossScaleOptimizer of contrib, Keras and npu_shim, MixedPrecisionLossScaleOptimizer, NPULossScaleOptimizer;
# MixedPrecisionOptimizerWrapper of OpenSeq2Seq
NAMED_AS_SCALING = re.compile("LossScal|MixedPrecision|AutomaticLossScaler")
LOSS_PASSES_ON = PASSES_ON | {"Sum", "Mean", "Neg", "CheckNumerics"}


class _Built(Graph):
    """A tf.Graph as it was built."""

    def op(self, tensor: Any) -> Any:
        return tensor.op

    def kind(self, op: Any) -> str:
        return str(op.type)

    def name(self, op: Any) -> str:
        return str(op.name)

    def inputs(self, op: Any) -> Sequence[Any]:
        return list(op.inputs)

    def readers(self, op: Any) -> Iterable[Any]:
        return (reader for tensor in op.outputs for reader in tensor.consumers())

    def is_scalar(self, tensor: Any) -> bool:
        return tensor.shape.ndims == 0 and bool(tensor.dtype.is_floating)

    def constant(self, tensor: Any) -> float | None:
        value = tf.get_static_value(tensor) if self.is_scalar(tensor) else None
        return None if value is None else float(value)


_BUILT = _Built()


def unscaling_in(graph: tf.Graph) -> set[str]:
    """Returns the names of the ops of a graph that take a scale out of gradients."""
    return {op.name for op in factors.unscaling(_BUILT, [op for op in graph.get_operations() if op.type == "Mul"])}


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


def divided_out(calls: Iterable[Any], by: Iterable[Factor]) -> Factor | None:
    """Returns a factor of the calls' losses that is divided out of the gradients, or None.

    Args:
        calls: made.Call.
        by: what the script multiplies the gradients by.
    """
    by_hand = list(by)
    for call in calls:
        for factor in _of_losses(call):
            if any(factors.cancel(factor, other) for other in by_hand):
                return factor
    return None


def factors_of(op: Any) -> list[Factor]:
    """Returns the scalars that an op multiplies by or divides by: none, one or two."""
    return factors.factors_of(_BUILT, op)


def is_scaled(op: Any, number: int) -> bool:
    """Whether an input of an op is what the op's factors scale, and not a factor: of two scalars, the first is."""
    taken = op.inputs[number]
    if taken.dtype.is_bool or taken.dtype.is_integer:
        return False  # a predicate, an index
    is_factor = (op.type == "Mul" and _BUILT.is_scalar(taken)) or (op.type in DIVISIONS and number == 1)
    return not is_factor or (number == 0 and all(map(_BUILT.is_scalar, op.inputs)))


def _of_losses(call) -> Iterator[Factor]:
    for start in call.starts:
        if start is not None and not isinstance(start, tf.IndexedSlices):
            start = tf.convert_to_tensor(start)
            if _BUILT.is_scalar(start):
                yield factors.factor(_BUILT, start)
    for loss in call.losses:
        op = loss.op
        while op.type in LOSS_PASSES_ON or factors_of(op):
            yield from factors_of(op)
            constants = [_BUILT.constant(tensor) is not None for tensor in op.inputs]
            op = op.inputs[constants.index(False) if False in constants[:2] else 0].op
