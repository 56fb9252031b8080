"""Two dimensions that depend on data, as the overlaps of as many boxes with as many others have.

    tf.tile(boxes[:, None], [1, 1, tf.shape(others)[0]])            each of these boxes as often as there are others
    tf.reshape(pairs, [tf.shape(boxes)[0], tf.shape(others)[0]])    what has been computed of each pair, as a matrix

A Grid comes of rows, and goes back to them by a reshape or a reduction over its other dimension. Rows of it are taken.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step import sizes
from npu_shim.step.masks import masked
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import indexing, reductions
from npu_shim.step.rules.table import Attrs
from npu_shim.step.values import Grid, Rows, Size, is_known, whole

WHY = "two of its dimensions depend on data"


def computed(node: Any, values: Sequence[Any]) -> Any:
    """What an op gives for values of which some are Grids; Unsupported if it does not take them."""
    if node.op not in HANDLERS or not isinstance(values[0], Grid):
        raise Unsupported("it takes a tensor of which two dimensions depend on data")
    return HANDLERS[node.op](node.attrs, *values)


def tiled(x: Rows, multiples: Sequence[Any]) -> Grid:
    """Tile of rows as often as data says along another dimension than the first."""
    at, size = _open_one(multiples, "it repeats several dimensions as often as data says")
    room = [part.most if part is size else part for part in multiples]
    if room[0] != 1:
        raise Unsupported("it repeats rows whose number depends on data, and another dimension as often as data says")
    return Grid(jnp.tile(x.array, room), x.count, size.count * np.int32(x.array.shape[at]), at)


def of_rows(x: Rows, dims: Sequence[Any]) -> Grid:
    """Reshape of rows to a shape of which the first size and another one depend on data."""
    at, size = _open_one(dims[1:], WHY)
    shape = [part.most if isinstance(part, Size) else part for part in dims]
    if min(shape) < 0:
        raise Unsupported(WHY)
    strides = _strides(shape, at + 1, size.count)
    places = sum((lax.broadcasted_iota(np.int32, shape, axis) * by for axis, by in enumerate(strides)), np.int32(0))
    array = jnp.take(x.array.reshape(-1), places, mode="clip")
    return Grid(array, dims[0].count, size.count, at + 1)


def _open_one(parts: Sequence[Any], why: str) -> tuple[int, Size]:
    """(Place, Size) of the only part that depends on data."""
    (first, *others) = [(at, part) for at, part in enumerate(parts) if isinstance(part, Size)]
    if others:
        raise Unsupported(why)
    return first


def _strides(shape: Sequence[int], axis: int, columns: Any) -> list[Any]:
    """By how many elements the next place of each dimension lies behind, where an axis has `columns` of them."""
    strides: list[Any] = [np.int32(1)]
    for at in range(len(shape) - 1, 0, -1):
        strides.append(strides[-1] * (columns if at == axis else np.int32(shape[at])))
    return strides[::-1]


def _reshaped(attrs: Attrs, x: Grid, shape: Any) -> Rows:
    first, *rest = sizes.sizes_of(shape)
    if any(isinstance(size, Size) or size < 0 for size in rest) or not (isinstance(first, Size) or first < 0):
        raise Unsupported("%s, and it gives them other places" % WHY)
    width = math.prod(rest)
    room = x.array.size // max(width, 1)
    strides, left, places = _strides(x.array.shape, x.axis, x.columns), np.arange(room * width, dtype=np.int32), []
    for stride in strides:
        by = jnp.maximum(stride, np.int32(1))
        places.append(left // by)
        left = left % by
    array = x.array[tuple(jnp.clip(place, 0, np.int32(max(n - 1, 0))) for place, n in zip(places, x.array.shape))]
    count = x.count * strides[0] // np.int32(max(width, 1))
    return Rows(array.reshape((room, *rest)), count)


def _along(op: str, worst: Callable[[Any], Any]) -> Callable[..., Any]:
    """A reduction, ArgMax or ArgMin over the other counted dimension."""

    def reduced(attrs: Attrs, x: Grid, axes: Any) -> Rows:
        if reductions.axes_of(axes, x.array.ndim) != (x.axis,):
            raise Unsupported("%s, and it is not over the second of these" % WHY)
        array = masked(x.array, x.columns, worst(x.array.dtype), x.axis)
        return Rows(reductions.RULES[op].apply(attrs, array, axes), x.count)

    return reduced


def _gathered(attrs: Attrs, x: Grid, indices: Any, axis: Any) -> Grid:
    is_vector = isinstance(indices, Rows) and indices.array.ndim == 1
    if not is_vector or not is_known(axis) or whole(axis) or attrs.get("batch_dims", 0):
        raise Unsupported("%s, and it takes other parts than rows of it" % WHY)
    return Grid(indexing.gather(attrs, x.array, indices.array, axis), indices.count, x.columns, x.axis)


HANDLERS: dict[str, Callable[..., Any]] = {
    "Shape": sizes.shape_of, "ShapeN": sizes.shape_of, "Reshape": _reshaped, "GatherV2": _gathered,
    "Sum": _along("Sum", lambda dtype: 0),
    "Max": _along("Max", reductions.least), "Min": _along("Min", reductions.most),
    "ArgMax": _along("ArgMax", reductions.least), "ArgMin": _along("ArgMin", reductions.most),
}  # fmt: skip
