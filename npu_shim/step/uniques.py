"""Different values among many: those of Unique and its kin, in the order in which they first come."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from npu_shim.step.lookups import MOST
from npu_shim.step.masks import mask
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, is_known, whole

FIRST = np.zeros(1, np.int32)  # the axis of an op that has no input for it
FEW = 8  # rows of a table for each id, at most, where all of them are looked at


def unique(attrs: Attrs, x: Any, axis: Any = FIRST) -> tuple[Any, Any, Any]:
    """(Values in the order in which they first come, each element's place among them, counts); or rows by an axis."""
    if not is_known(axis):
        raise Unknown(1)
    along = whole(axis) if np.size(axis) else 0
    if along and np.ndim(getattr(x, "array", x)) > 1:
        raise Unsupported("it tells parts along an axis other than the first apart")
    if is_known(x):
        values, first, inverse, counts = np.unique(x, True, True, True, axis=0 if x.ndim > 1 else None)
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        dtype = attrs["out_idx"]
        return values[order], rank[inverse].reshape(-1).astype(dtype), counts[order].astype(dtype)
    if not isinstance(x, Rows):
        return _unique(x, jnp.ones(x.shape[0], bool), attrs)
    values, places, counts = _unique(x.array, mask(x), attrs)
    return values, Rows(places, x.count), counts


def _unique(x: Any, is_there: Any, attrs: Attrs) -> tuple[Any, Any, Any]:
    if x.ndim == 1 and 0 < attrs.get(MOST, 0) <= FEW * x.shape[0]:
        return _unique_ids(x, is_there, attrs)
    size, dtype = x.shape[0], attrs["out_idx"]
    columns = [x] if x.ndim == 1 else list(x.reshape((size, -1)).T)
    order = jnp.lexsort((*reversed(columns), ~is_there)).astype(np.int32)  # stable; what is not there comes last
    live = is_there[order]
    ordered = jnp.stack([column[order] for column in columns], -1) if columns else jnp.zeros((size, 0), x.dtype)
    starts = jnp.concatenate([jnp.ones(min(size, 1), bool), jnp.any(ordered[1:] != ordered[:-1], 1)]) & live
    group = jnp.where(live, jnp.cumsum(starts, dtype=np.int32) - np.int32(1), np.int32(max(size - 1, 0)))
    first = jnp.full(size, size, np.int32).at[group].min(order)  # of each group, `size` behind the last
    count = jnp.sum(starts, dtype=np.int32)
    by_place = jnp.argsort(first, stable=True).astype(np.int32)
    rank = jnp.zeros(size, np.int32).at[by_place].set(jnp.arange(size, dtype=np.int32))
    places = jnp.zeros(size, np.int32).at[order].set(rank[group])
    values = jnp.take(x, first[by_place], 0, mode="clip")
    counts = jnp.zeros(size, np.int32).at[places].add(is_there.astype(np.int32))
    return Rows(values, count), places.astype(dtype), Rows(counts.astype(dtype), count)


def _unique_ids(x: Any, is_there: Any, attrs: Attrs) -> tuple[Any, Any, Any]:
    """The same of numbers of a table's rows: where each row first comes says all, and nothing is sorted.

    So each of several devices looks at its own ids, and they exchange as many numbers as there are rows. All ids out of
    range are one value: such a lookup is an error of TensorFlow's.
    """
    size, rows, dtype = x.shape[0], attrs[MOST], attrs["out_idx"]
    room, at = min(size, rows), jnp.arange(size, dtype=np.int32)
    row = jnp.where((x >= 0) & (x < np.array(rows, x.dtype)), x, np.array(rows, x.dtype)).astype(np.int32)
    first = jnp.full(rows + 1, size, np.int32).at[jnp.where(is_there, row, np.int32(rows + 1))].min(at, mode="drop")
    own = jnp.minimum(first[row], np.int32(size - 1))
    starts = is_there & (own == at)
    rank = jnp.cumsum(starts, dtype=np.int32) - np.int32(1)
    places = jnp.where(is_there, rank[own], np.int32(size - 1))
    values = jnp.zeros(room, x.dtype).at[jnp.where(starts, rank, np.int32(room))].set(x, mode="drop")
    counts = jnp.zeros(room, np.int32).at[places].add(is_there.astype(np.int32), mode="drop")
    count = jnp.minimum(jnp.sum(starts, dtype=np.int32), np.int32(room))
    return Rows(values, count), places.astype(dtype), Rows(counts.astype(dtype), count)


def rule(outputs: int) -> Rule:
    """The Rule of an op with so many of these outputs."""
    apply = lambda attrs, x, *axis: unique(attrs, x, *axis)[:outputs]  # noqa: E731
    return Rule(apply, rows=apply)
