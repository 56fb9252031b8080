"""What stands behind the last of as many elements as data says, put out of the way."""

from __future__ import annotations

from typing import Any, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.values import Rows


def there(most: int, count: Any) -> Any:
    """Which of `most` elements there are if data counts `count`, bool [most]."""
    return jnp.arange(most, dtype=np.int32) < count


def mask(rows: Rows) -> Any:
    """Which rows there are, bool [most]."""
    return there(rows.array.shape[0], rows.count)


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
