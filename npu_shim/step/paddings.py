"""Padding by as many rows as data says.

    tf.pad(rows, [[0, 8 - tf.shape(rows)[0]], [0, 0]])     gives 8 rows however many there are
    the gradient of tf.slice(x, [1, 0], [count, 3])        has the shape of x

What comes behind the rows is told apart by where it is from: it is what they are fewer than (`values.Size.rest`).
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
from npu_shim.step.values import Dims, Rows, Size, is_known, traced

ZERO = np.zeros((), np.int8)  # what Pad pads with
OPS = frozenset(["Pad", "PadV2"])


def pairs(paddings: Dims) -> list[tuple[Any, Any]]:
    """(Size in front, size behind) of each dimension."""
    return list(zip(paddings.sizes[::2], paddings.sizes[1::2]))


def pad(attrs: Attrs, x: Any, paddings: Any, value: Any = ZERO) -> Any:
    """Pad and PadV2 of rows, and by as many rows as data says."""
    if is_known(paddings) and not isinstance(x, Rows):
        return arrays.pad(attrs, sizes.as_tensor(x), paddings, sizes.as_tensor(value))
    if is_known(paddings):
        before, after = paddings[0].tolist()
        array = arrays.pad(attrs, masked(x.array, x.count, value), paddings, np.array(value, x.array.dtype))
        return Rows(array, x.count + np.int32(before + after) if before + after else x.count)
    if not isinstance(paddings, Dims) or not is_known(value):
        raise Unknown(1)
    (before, after), *others = pairs(paddings)
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
