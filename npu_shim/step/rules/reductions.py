"""Sums, products, extremes and what is like them, along axes; low precision is summed in float32."""

from __future__ import annotations

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.platforms import summed_in, summed_widely
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import guarded, ints, traced, whole, xp


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Known axes, none of them negative; () for none."""
    return tuple(sorted({axis % rank for axis in ints(axes)})) if np.size(axes) and rank else ()


def _along(function: Callable[[Any, Any, tuple[int, ...], bool], Any]) -> Rule:
    def reduced(attrs: Attrs, x: Any, axes: Any) -> Any:
        along = axes_of(axes, x.ndim)
        return function(xp(x), x, along, attrs["keep_dims"]) if along else x

    return Rule(reduced, known=(1,))


def _summed_along(function: Callable[[Any, Any, tuple[int, ...], bool], Any]) -> Rule:
    """The same of what adds up or multiplies: jax.numpy's functions do so in the dtype that they are told to give."""
    return Rule(summed_widely(_along(function).apply), known=(1,))


def _sum(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    return library.sum(x, along, dtype=x.dtype, keepdims=keep)


def _product(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    return library.prod(x, along, dtype=x.dtype, keepdims=keep)


def _mean(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    return mean_of(x, along, keep, np.int64(np.prod([x.shape[axis] for axis in along], dtype=np.int64)))


def mean_of(x: Any, along: tuple[int, ...], keep: bool, number: Any) -> Any:
    """The mean of `number` elements, where all others along the axes are zero.

    Low precision is divided in float32 too, and whole numbers are added up in 64 bits, as TensorFlow's kernel does.

    Args:
        x: a traced tensor.
        along: the axes.
        keep: whether they stay, as 1.
        number: int32 or int64, known or traced.
    """
    is_whole = np.issubdtype(x.dtype, np.integer)
    whole_dtype = np.dtype(np.uint64 if np.issubdtype(x.dtype, np.unsignedinteger) else np.int64)
    wide = traced(x).astype(whole_dtype if is_whole else summed_in(x.dtype))
    total = jnp.sum(wide, along, dtype=wide.dtype, keepdims=keep)
    return lax.div(total, jnp.broadcast_to(number, total.shape).astype(total.dtype)).astype(x.dtype)


def _largest(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    return library.max(x, along, keepdims=keep, initial=least(x.dtype)) if x.size == 0 else library.max(
        x, along, keepdims=keep
    )  # fmt: skip


def _smallest(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    return library.min(x, along, keepdims=keep, initial=most(x.dtype)) if x.size == 0 else library.min(
        x, along, keepdims=keep
    )  # fmt: skip


def least(dtype: Any) -> Any:
    """Minus infinity, or the smallest whole number, of a dtype."""
    return np.array(-np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).min, dtype)


def most(dtype: Any) -> Any:
    """Infinity, or the largest whole number, of a dtype."""
    return np.array(np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).max, dtype)


def _euclidean(library: Any, x: Any, along: tuple[int, ...], keep: bool) -> Any:
    square = jnp.real(x * jnp.conj(x)) if np.iscomplexobj(x) else x * x
    return jnp.sqrt(_sum(jnp, square, along, keep)).astype(x.dtype)


def _norm(attrs: Attrs, x: Any, axes: Any) -> Any:
    return _summed_along(_euclidean).apply(attrs, x, axes) if np.size(axes) and x.ndim else jnp.abs(x).astype(x.dtype)


def l2_loss(attrs: Attrs, x: Any) -> Any:
    """L2Loss."""
    x = traced(x)
    wide = x.astype(summed_in(x.dtype))
    total = lax.reduce(lax.mul(wide, wide), np.array(0, wide.dtype), lax.add, tuple(range(wide.ndim)))
    return lax.convert_element_type(lax.div(total, np.array(2, wide.dtype)), x.dtype)


def _extreme(name: str) -> Rule:
    def found_at(attrs: Attrs, x: Any, axis: Any) -> Any:
        at = getattr(xp(x), name)(_comparable(name, x), whole(axis))
        return at.astype(attrs["output_type"])

    return Rule(found_at, known=(1,))


def _comparable(name: str, x: Any) -> Any:
    """What ArgMax and ArgMin compare: TensorFlow's begin at the farthest finite number, which NaN does not exceed."""
    if not jnp.issubdtype(x.dtype, np.floating):
        return x
    limits = jnp.finfo(x.dtype)
    start = np.array(limits.min if name == "argmax" else limits.max, x.dtype)
    return xp(x).where(x > start if name == "argmax" else x < start, x, start)


def _cumulative(function: Callable[..., Any], start: int) -> Rule:
    def summed(attrs: Attrs, x: Any, axis: Any) -> Any:
        x, along = guarded(x), whole(axis) % x.ndim
        backwards = attrs["reverse"]
        result = function(x.astype(summed_in(x.dtype)), axis=along, reverse=backwards).astype(x.dtype)
        if not attrs["exclusive"]:
            return result
        amounts = [(0, 0, 0)] * x.ndim
        amounts[along] = (-1, 1, 0) if backwards else (1, -1, 0)
        return lax.pad(result, np.array(start, x.dtype), amounts)

    return Rule(summed, known=(1,))


def _log_sum(attrs: Attrs, x: Any, axis: Any) -> Any:
    x, along = guarded(x), whole(axis) % x.ndim
    result = lax.cumlogsumexp(x, axis=along, reverse=attrs["reverse"])
    if not attrs["exclusive"]:
        return result
    amounts = [(0, 0, 0)] * x.ndim
    amounts[along] = (-1, 1, 0) if attrs["reverse"] else (1, -1, 0)
    return lax.pad(result, least(x.dtype), amounts)


def bincount(attrs: Attrs, values: Any, size: Any, weights: Any) -> Any:
    """Bincount."""
    dtype = attrs["T"]
    amounts = weights.reshape(-1) if weights.size else jnp.ones(values.size, dtype)
    places = jnp.reshape(values, (-1,))
    return jnp.zeros(whole(size), dtype).at[places].add(amounts, mode="drop")


def dense_bincount(attrs: Attrs, values: Any, size: Any, weights: Any) -> Any:
    """DenseBincount: of a vector, or of each row of a matrix; with binary_output whether a number is there."""
    x, room = traced(values), whole(size)
    rows = x if x.ndim == 2 else x[None]
    amounts = jnp.reshape(weights, rows.shape) if weights.size else jnp.ones(rows.shape, weights.dtype)
    at = np.arange(rows.shape[0])[:, None], jnp.where(rows < 0, np.array(room, rows.dtype), rows)
    full = jnp.zeros((rows.shape[0], room), weights.dtype).at[at]
    counts = (
        full.set(np.ones((), weights.dtype), mode="drop") if attrs["binary_output"] else full.add(amounts, mode="drop")
    )
    return counts if x.ndim == 2 else counts[0]


def bound(side: str) -> Rule:
    """LowerBound and UpperBound: where each value would stand in its row of sorted numbers; NaN is below none."""

    def places_of(attrs: Attrs, ordered: Any, values: Any) -> Any:
        places = jax.vmap(lambda row, x: jnp.searchsorted(row, x, side=side))(traced(ordered), traced(values))
        if side == "left" and jnp.issubdtype(values.dtype, np.floating):
            places = jnp.where(jnp.isnan(values), np.zeros((), places.dtype), places)
        return places.astype(attrs["out_type"])

    return Rule(places_of)


def top_k(attrs: Attrs, x: Any, k: Any = None) -> Any:
    """TopK and TopKV2: of equal elements the first comes first, and -0.0, which XLA puts behind 0.0, equals it."""
    count = attrs["k"] if k is None else whole(k)
    zero = np.zeros((), x.dtype)
    x = jnp.where(x == zero, zero, x) if jnp.issubdtype(x.dtype, np.floating) else jnp.asarray(x)
    values, places = lax.top_k(x, count)
    return values, places.astype(attrs.get("index_type") or np.int32)


def in_top_k(attrs: Attrs, predictions: Any, targets: Any, k: Any = None) -> Any:
    """InTopK and InTopKV2: whether fewer than k classes have more; never where the target's is not finite."""
    count = attrs["k"] if k is None else k
    count = jnp.asarray(count).astype(np.int32)
    classes = predictions.shape[1]
    known = (targets >= 0) & (targets < classes)
    own = jnp.take_along_axis(predictions, jnp.clip(targets, 0, classes - 1)[:, None].astype(np.int32), 1)
    larger = jnp.sum(predictions > own, 1, dtype=np.int32)
    finite = jnp.all(jnp.isfinite(predictions), 1)
    return known & finite & (larger < count)


RULES = {
    "Sum": _summed_along(_sum),
    "Prod": _summed_along(_product),
    "Mean": _along(_mean),
    "Max": _along(_largest),
    "Min": _along(_smallest),
    "All": _along(lambda library, x, along, keep: library.all(x, along, keepdims=keep)),
    "Any": _along(lambda library, x, along, keep: library.any(x, along, keepdims=keep)),
    "EuclideanNorm": Rule(_norm, known=(1,)),
    "L2Loss": Rule(l2_loss),
    "ArgMax": _extreme("argmax"),
    "ArgMin": _extreme("argmin"),
    "Cumsum": _cumulative(lax.cumsum, 0),
    "Cumprod": _cumulative(lax.cumprod, 1),
    "CumulativeLogsumexp": Rule(_log_sum, known=(1,)),
    "Bincount": Rule(bincount, known=(1,)),
    "DenseBincount": Rule(dense_bincount, known=(1,)),
    "LowerBound": bound("left"),
    "UpperBound": bound("right"),
    "TopK": Rule(top_k),
    "TopKV2": Rule(top_k, known=(1,)),
    "InTopK": Rule(in_top_k),
    "InTopKV2": Rule(in_top_k),
}
