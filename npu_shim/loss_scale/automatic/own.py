"""Recognizes scripts that scale their losses by themselves.

An optimizer whose class, or a base of it, or an optimizer that it wraps, is named as loss scaling is. Or a factor that
the loss is multiplied by and the gradients are divided by: the same constant, variable or placeholder.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.optimizers.update_ops import OPTIMIZER_STEP
from npu_shim.rewriter.graph import factors
from npu_shim.rewriter.graph.factors import DIVISIONS, PASSES_ON, ByScale, Factor, Graph
from npu_shim.rewriter.graph.walks import reached

# LossScaleOptimizer of contrib, Keras and npu_shim, MixedPrecisionLossScaleOptimizer, NPULossScaleOptimizer;
# MixedPrecisionOptimizerWrapper of OpenSeq2Seq
NAMED_AS_SCALING = re.compile("LossScal|MixedPrecision|AutomaticLossScaler")
LONGEST = 64  # products of a loss's factors that are looked at
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
        return tensor.shape.num_elements() == 1 and bool(tensor.dtype.is_floating)

    def constant(self, tensor: Any) -> float | None:
        value = tf.get_static_value(tensor) if self.is_scalar(tensor) else None
        return None if value is None else float(value.item())


_BUILT = _Built()


def scales_in(graph: tf.Graph) -> ByScale:
    """Returns the scales that losses of a graph are multiplied by, for the two functions below."""
    return factors.unscaling_by_start(_BUILT, [op for op in graph.get_operations() if op.type == "Mul"])


def unscaling(scales: ByScale) -> set[str]:
    """Returns the names of the ops that take a scale out of gradients."""
    return {op.name for op in factors.unscaling(_BUILT, scales)}


def scales_left(scales: ByScale) -> set[float]:
    """Returns the constants that losses are multiplied by, and that no op takes out of gradients which are applied."""
    return {
        scale.value
        for scale, (starts, taken) in scales.items()
        if not scale.names
        and not taken
        and any(OPTIMIZER_STEP.match(op.type) for op in reached(starts, _BUILT.readers))
    }


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
    scales = [scale for call in calls for scale in _of_losses(call)]
    divided = [scale for scale in scales if any(factors.cancel(scale, other) for other in by_hand)]
    return max(divided, key=lambda scale: abs(scale.value)) if divided else None


def products_of(op: Any) -> Iterator[Factor]:
    """Yields the scalars that an op multiplies by or divides by, and their products with those just before it."""
    return (product for product, _ in factors.products(_BUILT, op))


def is_scaled(op: Any, number: int) -> bool:
    """Whether an input of an op is what the op's factors scale, and not a factor.

    Of two scalars of a product that is the one with more dimensions, else the first.
    """
    taken = op.inputs[number]
    if taken.dtype.is_bool or taken.dtype.is_integer:
        return False  # a predicate, an index
    if op.type in DIVISIONS:
        return number == 0
    if op.type != "Mul" or not _BUILT.is_scalar(taken):
        return True
    other = op.inputs[1 - number]
    more = taken.shape.ndims - (other.shape.ndims if _BUILT.is_scalar(other) else taken.shape.ndims + 1)
    return more > 0 or (more == 0 and number == 0)


def _of_losses(call) -> Iterator[Factor]:
    for loss, start in zip(call.losses, call.starts):
        runs: list[Factor] = []  # of the factors that follow one another up to here
        if start is not None and not isinstance(start, tf.IndexedSlices):
            start = tf.convert_to_tensor(start)
            runs = [factors.factor(_BUILT, start)] if _BUILT.is_scalar(start) else []
        yield from runs
        op = loss.op
        while op.type in LOSS_PASSES_ON or factors.factors_of(_BUILT, op):
            own = factors.factors_of(_BUILT, op)
            runs = [*own, *(one.times(other) for one in own for other in runs)][:LONGEST] or runs
            yield from runs
            constants = [_BUILT.constant(tensor) is not None for tensor in op.inputs]
            op = op.inputs[constants.index(False) if False in constants[:2] else 0].op
