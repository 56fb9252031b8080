"""Padding by as many rows as data says, and paddings as pairs of sizes.

    tf.pad(rows, [[0, 8 - tf.shape(rows)[0]], [0, 0]])     gives 8 rows however many there are
    the gradient of tf.slice(x, [1, 0], [count, 3])        has the shape of x

A vector of sizes that becomes a column, columns that are joined, and vectors of two that are packed are Pairs. What
comes behind the rows is told apart by where it is from: it is what they are fewer than (`values.Size.rest`).
"""

from __future__ import annotations

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from npu_shim.step import sizes
from npu_shim.step.masks import masked
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules import arrays
from npu_shim.step.rules.table import Attrs
from npu_shim.step.values import Dims, Pairs, Rows, Size, is_known, traced, whole

ZERO = np.zeros((), np.int8)  # what Pad pads with


def column(dims: Dims) -> Pairs:
    """Sizes one below the other."""
    return Pairs(tuple((size,) for size in dims.sizes), dims.dtype)


def packed(values: Any) -> Pairs | None:
    """Vectors of two sizes one below the other, None if the values are not such."""
    rows = [sizes.sizes_of(v) if isinstance(v, Dims) or (is_known(v) and np.ndim(v) == 1) else () for v in values]
    if any(len(row) != 2 for row in rows):
        return None
    return Pairs(tuple(rows), next(value.dtype for value in values if isinstance(value, Dims)))


def joined(attrs: Attrs, *values: Any) -> Any:
    """ConcatV2 of columns."""
    *parts, axis = values
    if whole(axis) not in (1, -1) or not all(isinstance(part, Pairs) or is_known(part) for part in parts):
        return jnp.concatenate([as_tensor(part) for part in parts], whole(axis))
    rows = zip(*(part.rows if isinstance(part, Pairs) else part.tolist() for part in parts))
    dtype = next(part.dtype for part in parts if isinstance(part, Pairs))
    return Pairs(tuple(tuple(size for part in row for size in part) for row in rows), dtype)


def as_tensor(value: Any) -> Any:
    """Pairs as a traced tensor; another value as it is."""
    if not isinstance(value, Pairs):
        return value
    return jnp.stack([sizes.as_tensor(Dims(tuple(row), value.dtype)) for row in value.rows])


def pad(attrs: Attrs, x: Any, paddings: Any, value: Any = ZERO) -> Any:
    """Pad and PadV2 of rows, and by as many rows as data says."""
    if is_known(paddings):
        before, after = paddings[0].tolist()
        array = arrays.pad(attrs, masked(x.array, x.count, value), paddings, np.array(value, x.array.dtype))
        return Rows(array, x.count + np.int32(before + after) if before + after else x.count)
    if not isinstance(paddings, Pairs) or not is_known(value):
        raise Unknown(1)
    (before, after), *others = paddings.rows
    if any(isinstance(size, Size) for pair in others for size in pair):
        raise Unsupported("it pads an axis behind the first by as much as data says")
    array, count = (x.array, x.count) if isinstance(x, Rows) else (traced(x), np.int32(x.shape[0]))
    array = arrays.pad(attrs, array, np.array([(0, 0), *others]), np.array(value, array.dtype))
    return _placed(array, count, before, _padded(Size(count, array.shape[0]), before, after), value)


def _placed(array: Any, count: Any, before: Any, size: Any, value: Any) -> Any:
    """Rows behind `before` others, in `size` of them."""
    room = size.most if isinstance(size, Size) else size
    number = np.arange(array.shape[0], dtype=np.int32)
    start = before.count if isinstance(before, Size) else np.int32(before)
    places = jnp.where(number < count, number + start, np.int32(room))
    result = jnp.full((room, *array.shape[1:]), value, array.dtype).at[places].set(array, mode="drop")
    return Rows(result, size.count) if isinstance(size, Size) else result


def _padded(taken: Size, before: Any, after: Any) -> Any:
    """How many rows there are then: if all that were left out are put back, as many as there had been."""
    if isinstance(after, Size) and after.rest is not None:
        origin, count, less = after.rest
        if count is taken.count and less == before:
            return origin
    return sizes.of_two(operator.add, None, sizes.of_two(operator.add, None, taken, before), after)


def _sliced(attrs: Attrs, pairs: Any, begin: Any, size: Any) -> Any:
    """Slice: what the gradient of Pad begins at."""
    if not isinstance(pairs, Pairs) or not is_known(begin, size):
        raise Unknown(1)
    (top, left), (height, width) = begin.tolist(), size.tolist()
    rows = pairs.rows[top : None if height < 0 else top + height]
    return _again([row[left : None if width < 0 else left + width] for row in rows], pairs.dtype)


def _flat(attrs: Attrs, pairs: Any, shape: Any) -> Any:
    """Reshape to a vector."""
    if not isinstance(pairs, Pairs) or not is_known(shape) or np.size(shape) != 1:
        return jnp.reshape(as_tensor(pairs), shape)
    parts = tuple(size for row in pairs.rows for size in row)
    return Dims(parts, pairs.dtype) if any(isinstance(size, Size) for size in parts) else np.array(parts, pairs.dtype)


def _again(rows: Any, dtype: Any) -> Any:
    """Pairs, known if all their parts are."""
    if any(isinstance(size, Size) for row in rows for size in row):
        return Pairs(tuple(map(tuple, rows)), dtype)
    return np.array(rows, dtype)


OF_PAIRS = {"Pad": pad, "PadV2": pad, "ConcatV2": joined, "Slice": _sliced, "Reshape": _flat}
