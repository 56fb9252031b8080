"""What the branches of a conditional give in one place, made one: sizes of their own become rows, Optionals are filled.

A side gives [5, 3] and another one [2, 3] or rows: both are rows, so many of at most 5. Two Optionals are one with the
values of both (`containers.optionals`).
"""

from __future__ import annotations

from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers import optionals
from npu_shim.step.containers.optionals import Optional
from npu_shim.step.masks import array_of
from npu_shim.step.values import Rows


def joined(results: Sequence[Sequence[Any]]) -> list[Any]:
    """What branches give, as one would give it: shapes and dtypes.

    Args:
        results: what each branch gives, values or their shapes and dtypes.
    """
    return [_joined(values) for values in zip(*results)]


def _joined(values: Sequence[Any]) -> Any:
    if all(isinstance(value, Optional) for value in values):
        return optionals.joined(values)
    arrays = list(map(array_of, values))
    if not _are_rows(values, arrays):
        return values[0]
    room = max(array.shape[0] for array in arrays)
    like = jax.ShapeDtypeStruct((room, *arrays[0].shape[1:]), arrays[0].dtype)
    return Rows(like, jax.ShapeDtypeStruct((), np.int32))


def _are_rows(values: Sequence[Any], arrays: Sequence[Any]) -> bool:
    """Whether these are tensors of several numbers of rows, and of one shape and dtype of a row."""
    if not all(hasattr(array, "shape") and len(array.shape) for array in arrays):
        return False
    alike = {(str(array.dtype), tuple(array.shape[1:])) for array in arrays}
    return len(alike) == 1 and (
        any(isinstance(value, Rows) for value in values) or len({array.shape[0] for array in arrays}) > 1
    )


def filled(result: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """What a branch gives, in the form of `joined`."""
    return [_filled(value, other) for value, other in zip(result, like)]


def _filled(value: Any, like: Any) -> Any:
    if isinstance(value, Optional) and isinstance(like, Optional):
        return optionals.filled(value, like)
    if not isinstance(like, Rows):
        return value
    if not isinstance(value, Rows) and (not np.ndim(value) or np.shape(value)[1:] != like.array.shape[1:]):
        return value  # of another shape
    array, count = value if isinstance(value, Rows) else (value, np.int32(value.shape[0]))
    more = like.array.shape[0] - array.shape[0]
    return Rows(jnp.pad(jnp.asarray(array), [(0, more)] + [(0, 0)] * (array.ndim - 1)), jnp.asarray(count))
