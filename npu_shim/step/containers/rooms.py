"""Whether what a step's loops fill had room for it: noted while it runs, and told with its results.

A buffer has room for as many elements as loops add at most (`control_flow.trips`). XLA drops what is written beyond,
so each loop looks at what it has filled when it has ended, and a cell of the Run says whether all of it was enough. A
step that has such a cell fetches it as KEY, and where that does not hold its floating-point fetches are NaN; its
variables, whose copies would cost time, are wrong, and whoever runs the step stops it.

So it is where a place that is written or read is none of those that there are: of a known one the step is refused.
"""

from __future__ import annotations

from typing import Any, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import guards
from npu_shim.step.containers.lists import List
from npu_shim.step.control_flow import counted
from npu_shim.step.counters import BOUNDS
from npu_shim.step.graph import Node
from npu_shim.step.masks import array_of
from npu_shim.step.refusals import Unsupported
from npu_shim.step.values import Rows, is_known, whole

KEY = BOUNDS
HOLDS = np.bool_(True)


def require_enough(run: Any, key: str) -> None:
    """Notes that a Stack or TensorArray must have had room for what was added to it, and what was taken from it."""
    cell = run.cells[key]
    if type(cell) is not tuple or is_known(cell[1]):  # a variable, or one whose size is known
        return
    buffer, number = cell
    facts = run.facts.get(key)
    axis = number.ndim if facts is None else int(facts.total > 0)
    room = jax.tree.leaves(buffer)[0].shape[axis]
    require(run, jnp.all((number >= 0) & (number <= np.int32(room))))


def require_all(run: Any, keys: Iterable[str], values: Any) -> None:
    """Notes the same of what a loop has changed: Stacks and TensorArrays by their keys, TensorLists in a pytree."""
    for key in keys:
        require_enough(run, key)
    for value in _open_lists(values):
        require(run, _has_room(value))


def _open_lists(values: Any) -> list[List]:
    """The TensorLists in a pytree whose length is traced."""
    parts = jax.tree.leaves(values, is_leaf=lambda value: isinstance(value, List))
    return [value for value in parts if isinstance(value, List) and not is_known(value.length)]


def _has_room(value: List) -> Any:
    is_open = bool(jax.tree.leaves(value.buffer))  # a list of one known value has room for any number of it
    return (value.length >= 0) & (value.length <= np.int32(value.room)) if is_open else value.length >= 0


def require_list(scope: Any, node: Node, result: Any) -> None:
    """Notes it of the TensorList that a node gives, but of a loop's variable, which that looks at when it has ended."""
    held = result[0] if type(result) is tuple else result
    if not isinstance(held, List):
        return
    if is_known(held.length):
        _require(scope, node, np.bool_(whole(held.length) >= 0), "it takes an element from an empty list")
    elif scope.serial is None or node.inputs[0][0] not in scope.given:
        _require(scope, node, _has_room(held), "")


def require_within(scope: Any, node: Node, index: Any, size: Any = None) -> None:
    """Notes that the places that a node writes or reads must be some of those that there are.

    Args:
        scope: the scope in which the node is interpreted.
        node: a Node.
        index: the places, known, traced or Rows.
        size: how many there are, known or traced; None for a container that grows.

    Raises:
        Unsupported: a known place is not.
    """
    size = np.int32(size) if isinstance(size, int) else size
    if is_known(index) and (size is None or is_known(size)):
        outside = [at for at in np.ravel(index).tolist() if at < 0 or (size is not None and at >= whole(size))]
        there = "" if size is None else ", of %d elements" % whole(size)
        text = "index %d is out of range%s" % (outside[0], there) if outside else ""
        _require(scope, node, np.bool_(not outside), text)
        return
    first, last, _ = counted.values_of(scope, node.inputs[1], index)
    is_sized = size is None or (is_known(size) and last is not None and last < whole(size))
    if first is not None and first >= 0 and is_sized:
        return
    places = jnp.asarray(array_of(index))
    holds = places >= 0
    if size is not None:
        holds = holds & (places < jnp.asarray(size).astype(places.dtype))
    if isinstance(index, Rows):
        holds = holds | (np.arange(places.shape[0], dtype=np.int32) >= index.count)
    require_where(scope, node, jnp.all(holds) if np.ndim(holds) else holds)


def require_where(scope: Any, node: Node, holds: Any, key: str = KEY) -> None:
    """Notes a bool that must hold where a node is computed, in a cell."""
    _require(scope, node, holds, "it does not hold", key)


def _require(scope: Any, node: Node, holds: Any, text: str, key: str = KEY) -> None:
    """Notes a condition where a node is computed; Unsupported if it is known not to hold, and the node is computed."""
    guard = scope.guard(node.name)
    if is_known(holds):
        if holds:
            return
        if scope.is_certain and not guard:
            raise Unsupported(text)
    if guard:
        holds = jnp.logical_or(holds, jnp.logical_not(guards.holds(scope.predicates, guard)))
    require(scope.run, holds, key)


def require(run: Any, condition: Any, key: str = KEY) -> None:
    """Notes a bool that must hold."""
    run.cells[key] = jnp.logical_and(run.cells[key], condition)


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
