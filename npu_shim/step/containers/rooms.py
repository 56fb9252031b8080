"""Whether what a step's loops fill had room for it: noted while it runs, and told with its results.

A buffer has room for as many elements as loops add at most (`control_flow.trips`). XLA drops what is written beyond,
so each loop looks at what it has filled when it has ended, and a cell of the Run says whether all of it was enough. A
step that has such a cell fetches it as KEY, and where that does not hold its floating-point fetches are NaN; its
variables, whose copies would cost time, are wrong, and whoever runs the step stops it.
"""

from __future__ import annotations

from typing import Any, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers.lists import List
from npu_shim.step.counters import BOUNDS
from npu_shim.step.values import is_known

KEY = BOUNDS
HOLDS = np.bool_(True)


def require_enough(run: Any, key: str) -> None:
    """Notes that a Stack or TensorArray must have had room for what was added to it."""
    cell = run.cells[key]
    if type(cell) is not tuple or is_known(cell[1]):  # a variable, or one whose size is known
        return
    buffer, number = cell
    facts = run.facts.get(key)
    axis = number.ndim if facts is None else int(facts.total > 0)
    room = jax.tree.leaves(buffer)[0].shape[axis]
    require(run, jnp.all(number <= np.int32(room)))


def require_all(run: Any, keys: Iterable[str], values: Any) -> None:
    """Notes the same of what a loop has changed: Stacks and TensorArrays by their keys, TensorLists in a pytree."""
    for key in keys:
        require_enough(run, key)
    for value in jax.tree.leaves(values, is_leaf=_is_list):
        if _is_list(value) and jax.tree.leaves(value.buffer) and not is_known(value.length):
            require(run, value.length <= np.int32(value.room))


def _is_list(value: Any) -> bool:
    return isinstance(value, List)


def require(run: Any, condition: Any) -> None:
    """Notes a traced bool that must hold."""
    run.cells[KEY] = jnp.logical_and(run.cells[KEY], condition)


def told(run: Any, fetched: dict[str, Any]) -> dict[str, Any]:
    """The fetches of a step: with KEY, and NaN where that does not hold, if something was asked."""
    holds = run.cells[KEY]
    if holds is HOLDS:
        return fetched
    return {**{name: _or_nan(value, holds) for name, value in fetched.items()}, KEY: holds}


def _or_nan(value: Any, holds: Any) -> Any:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return jnp.where(holds, value, np.array(np.nan, value.dtype))
