"""Which elements there are of as many as data says, and what stands behind the last of them, put out of the way."""

from __future__ import annotations

from typing import Any, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.values import Rows, Turned, traced


def there(most: int, count: Any) -> Any:
    """Which of `most` elements there are if data counts `count`, bool [most]."""
    return jnp.arange(most, dtype=np.int32) < count


def mask(rows: Rows) -> Any:
    """Which rows there are, bool [most]."""
    return there(rows.array.shape[0], rows.count)


def array_of(value: Any) -> Any:
    """The array of rows; another value as it is."""
    return value.array if isinstance(value, (Rows, Turned)) else value


def present(value: Any) -> Any:
    """Which elements of the first dimension of Rows, or of a tensor, there are: bool [most]."""
    return mask(value) if isinstance(value, Rows) else jnp.ones(value.shape[0], bool)


def cleared(value: Any, by: Any = 0) -> Any:
    """The array of rows with a value in the place of what is not there; another value as it is."""
    return masked(value.array, value.count, by, value.axis) if isinstance(value, (Rows, Turned)) else value


def live(ids: Any, size: Any, beside: Any = None) -> Any:
    """Ids, of which those that are not there lie behind the end, where a scatter takes no notice of them.

    Args:
        ids: [n], or [n, columns]; Rows or a tensor.
        size: what they are ids of: of how many, or how many in each column.
        beside: what has as many rows as they, where they are no Rows themselves.
    """
    counted = ids if isinstance(ids, Rows) else beside
    if not isinstance(counted, Rows):
        return ids
    array = traced(array_of(ids))
    is_there = mask(counted).reshape(-1, *[1] * (array.ndim - 1))
    return jnp.where(is_there, array, np.array(size).astype(array.dtype))


def common(counts: Sequence[Any]) -> Any:
    """The number of elements that tensors have in common: a single one goes with each element of the others."""
    number = counts[0]
    for count in counts[1:]:
        number = number if count is number else jnp.where(number == np.int32(1), count, number)
    return number


def repeated(array: Any, count: Any, axis: int = 0) -> Any:
    """An array with its first element of an axis in each place, if there is no other one."""
    is_single = (count == np.int32(1)) & np.bool_(array.shape[axis] > 1)
    return jnp.where(is_single, jnp.take(array, np.arange(min(1, array.shape[axis])), axis), array)


def masked(array: Any, count: Any, value: Any, axis: int = 0) -> Any:
    """An array with a value in the place of what stands behind the last of `count` elements of an axis."""
    shape = [1] * array.ndim
    shape[axis] = -1
    return jnp.where(there(array.shape[axis], count).reshape(shape), array, np.array(value, array.dtype))
