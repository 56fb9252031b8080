"""Batch normalization, in float32 inside, in reductions that XLA's partitioner can split over the batch."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced

EMPTY = np.zeros(0, np.float32)


def _axes(attrs: Attrs, x: Any) -> tuple[tuple[int, ...], list[int], int]:
    """(Axes that are summed over, shape in which a vector of channels broadcasts, elements of a channel)."""
    layout = attrs["data_format"]
    along = tuple(at for at, axis in enumerate(layout) if axis != "C")
    return along, [1 if at in along else -1 for at in range(x.ndim)], math.prod(x.shape[at] for at in along)


def _number(value: float) -> Any:
    return np.float32(value)


def batch_norm(attrs: Attrs, x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None) -> Any:
    """FusedBatchNorm, V2 and V3."""
    _, shape, count = _axes(attrs, x)
    wide = traced(x).astype(np.float32)
    if attrs["is_training"]:
        own_mean, own = _statistics(attrs, traced(x))
        unbiased = own * _number(count / max(count - 1, 1))
        given = _averaged(attrs, own_mean, mean), _averaged(attrs, unbiased, variance)
        kept = own_mean, own
    else:
        own_mean, own = mean, variance
        given = kept = mean, variance
    factor = lax.rsqrt(traced(own) + _number(attrs["epsilon"])) * scale
    y = wide * factor.reshape(shape) + (offset - own_mean * factor).reshape(shape)
    return (y.astype(x.dtype), *given, *kept, EMPTY)


def _statistics(attrs: Attrs, x: Any) -> tuple[Any, Any]:
    """(Mean, variance) of each channel, in one pass over x.

    x^2 - mean^2 loses what a channel varies by if that is little beside its mean. Each image is summed up as what it
    differs by from its first element, and the images' own statistics make the batch's: Chan, Golub and LeVeque,
    "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
    """
    along, _, count = _axes(attrs, x)
    inside = tuple(at for at in along if at)  # the batch comes first in each layout
    size = count // max(x.shape[0], 1)
    start = tuple(slice(1) if at in inside else slice(None) for at in range(x.ndim))
    first = x[start].astype(np.float32)  # XLA would keep a float32 copy of x for a part of that
    away = x.astype(np.float32) - first
    total, squares = away.sum(inside), (away * away).sum(inside)
    first, rest, within = first.sum(inside), total / _number(size), squares - total * total / _number(size)
    rough = (first + rest).sum(0) / _number(x.shape[0])
    apart = first - rough + rest  # an image's mean without `rough`, and without its rounding
    shift = apart.sum(0) / _number(x.shape[0])
    variance = (within.sum(0) + (apart * apart).sum(0) * _number(size)) / _number(count) - shift * shift
    return rough + shift, jnp.maximum(variance, _number(0))


def _averaged(attrs: Attrs, new: Any, old: Any) -> Any:
    factor = attrs.get("exponential_avg_factor", 1.0)
    if factor == 1.0 or old is None:
        return new
    return old * _number(1 - factor) + new * _number(factor)


def batch_norm_grad(attrs: Attrs, g: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
    """FusedBatchNormGrad, V2 and V3: the kept mean and variance are those of the batch, or the given ones."""
    along, shape, count = _axes(attrs, x)
    wide, gradient = traced(x).astype(np.float32), traced(g).astype(np.float32)
    root = lax.rsqrt(traced(variance) + _number(attrs["epsilon"]))
    of_offset = gradient.sum(along)
    centred = wide - mean.reshape(shape)
    products = (gradient * centred).sum(along)
    factor = root * scale
    if attrs["is_training"]:
        correction = of_offset.reshape(shape) / _number(count)
        slope = (products * root * root / _number(count)).reshape(shape)
        of_x = factor.reshape(shape) * (gradient - correction - centred * slope)
    else:
        of_x = factor.reshape(shape) * gradient
    of_scale = products * root if count else products  # 0: the variance of no images is NaN
    return of_x.astype(g.dtype), of_scale, of_offset, EMPTY, EMPTY


RULES = {
    **{op: Rule(batch_norm) for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")},
    **{op: Rule(batch_norm_grad) for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")},
}
