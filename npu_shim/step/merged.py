"""Dimensions in front of a data-sized one, made one with it: [batch, time, ...] as [batch * time, ...], and back.

Of [3, 5, ...] with 2 of 5 there are rows 0, 1, 5, 6, 10 and 11 of 15, which become the first 6.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step import sizes
from npu_shim.step.values import Dims, Rows, Size, Turned, is_known


def reshaped(scope: Any, x: Turned, shape: Any) -> Any:
    """Reshape of a tensor whose dimension behind some others depends on data; None for shapes that are not for it.

    Args:
        scope: the Scope, in which rows of tensors that are equally long are equally many.
        x: a Turned.
        shape: known, or Dims.
    """
    if not isinstance(shape, Dims) and not is_known(shape):
        return None
    dims, lead, rest = sizes.sizes_of(shape), x.array.shape[: x.axis], x.array.shape[x.axis + 1 :]
    if len(dims) > x.axis and dims[: x.axis] == lead and _are_ints(dims[x.axis + 1 :]):
        at = dims[x.axis]
        if math.prod(dims[x.axis + 1 :]) == math.prod(rest) and (at == -1 or getattr(at, "count", None) is x.count):
            array = x.array.reshape(*lead, x.array.shape[x.axis], *dims[x.axis + 1 :])
            return Turned(array, x.count, x.axis)
    is_open = bool(dims) and (isinstance(dims[0], Size) or dims[0] < 0)
    if is_open and math.prod(lead) != 1 and _are_ints(dims[1:]) and math.prod(dims[1:]) == math.prod(rest):
        rows = _rows_of(scope, x)
        return Rows(rows.array.reshape(rows.array.shape[0], *dims[1:]), rows.count)
    return None


def _are_ints(dims: Sequence[Any]) -> bool:
    return all(isinstance(size, int) and size >= 0 for size in dims)


def _rows_of(scope: Any, x: Turned) -> Rows:
    """All rows, those of one place in front behind those of the one before it."""
    lead, (room, *rest) = math.prod(x.array.shape[: x.axis]), x.array.shape[x.axis :]
    numbers, count = np.arange(lead * room, dtype=np.int32), jnp.maximum(x.count, np.int32(1))
    parts = jnp.minimum(numbers // count, np.int32(max(lead - 1, 0)))
    array = x.array.reshape(lead * room, *rest)
    number = x.count * np.int32(lead)
    _, number = scope.left.setdefault((id(x.count), "%d times" % lead), (x.count, number))
    return Rows(jnp.take(array, parts * np.int32(room) + numbers % count, 0, mode="clip"), number)


def apart(x: Rows, dims: Sequence[Any]) -> Turned | None:
    """Reshape of such rows to a shape with their dimensions in front; None for a shape that is not for it."""
    at = next((at for at, size in enumerate(dims) if isinstance(size, Size) or size < 0), 0)
    lead, rest = dims[:at], dims[at + 1 :]
    if not at or not _are_ints(rest) or math.prod(rest) != math.prod(x.array.shape[1:]):
        return None
    parts, size = math.prod(lead), dims[at]
    count = size.count if isinstance(size, Size) else x.count // np.int32(max(parts, 1))
    room = size.most if isinstance(size, Size) else x.array.shape[0] // max(parts, 1)
    places = np.arange(parts, dtype=np.int32)[:, None] * count + np.arange(room, dtype=np.int32)
    array = jnp.take(x.array.reshape(x.array.shape[0], *rest), places, 0, mode="clip")
    return Turned(array.reshape(*lead, room, *rest), count, at)
