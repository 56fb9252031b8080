"""Loop variables of TensorFlow 1 to which each iteration only appends rows.

TensorFlow gathers the gradient of an embedding that a loop looks up so: values and ids of each iteration, one behind
the other. Such a variable is a List with room for all iterations, and the concatenation writes into it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers import lists
from npu_shim.step.containers.lists import List
from npu_shim.step.control_flow.counted import HANDS_ON, behind
from npu_shim.step.refusals import UNBOUNDED, Unsupported
from npu_shim.step.schedule import Loop
from npu_shim.step.values import Rows, is_known, is_tensor, traced, whole


def variables(loop: Loop, scope: Any, start: Mapping[str, Any]) -> dict[str, str]:
    """Merge of a variable -> the ConcatV2 that appends to it, where nothing else in the loop takes it."""
    appending = {}
    for variable in loop.variables:
        name = behind(loop, variable.following)[0]
        node, value = loop.nodes[name], start[variable.merge]
        if node.op != "ConcatV2" or len(node.inputs) != 3 or not is_tensor(value) or not np.ndim(value):
            continue
        axis = loop.nodes.get(node.inputs[2][0])
        is_first = axis is not None and axis.op == "Const" and whole(axis.attrs["value"]) == 0
        if is_first and _takers(loop, scope, variable.merge) == {name}:
            appending[variable.merge] = name
    return appending


def _takers(loop: Loop, scope: Any, merge: str) -> set[str]:
    """The nodes that compute with a variable within an iteration."""
    takers, pending = set[str](), [merge]
    while pending:
        at = pending.pop()
        for user in scope.schedule.users.get(at, ()):
            node = scope.nodes[user]
            if user not in loop.nodes or node in loop.exits:
                continue
            if node.op in HANDS_ON and node.inputs[0][0] == at:
                pending.append(user)
            elif node.inputs[0][0] == at and node.op == "ConcatV2":
                takers.add(user)
            else:
                takers.add(user + " otherwise")
    return takers


def opened(value: Any) -> List:
    """A variable's first value as a List of its rows."""
    value = traced(value)
    return List(value, np.int32(value.shape[0]), value.dtype)


def leave_out(scope: Any, names: Iterable[str]) -> None:
    """Has an iteration not compute these concatenations; what hands them on hands on nothing."""
    scope.values.update(dict.fromkeys(names, np.float32(0)))
    scope.given = scope.given.union(names)


def with_rows(scope: Any, held: List, name: str) -> List:
    """A List to which the rows are appended that a ConcatV2 takes."""
    rows = scope.value(scope.raw(scope.nodes[name].inputs[1]))
    array, count = (rows.array, rows.count) if isinstance(rows, Rows) else (traced(rows), np.int32(rows.shape[0]))
    if array.dtype != held.buffer.dtype or array.shape[1:] != held.buffer.shape[1:]:
        raise Unsupported("it appends rows of another shape")
    buffer, at = held.buffer, held.length
    if is_known(at) and whole(at) == held.room:  # in a first pass, which says how much room an iteration needs
        buffer = jnp.pad(buffer, [(0, array.shape[0])] + [(0, 0)] * (array.ndim - 1))
    buffer = jnp.asarray(buffer).at[at + np.arange(array.shape[0], dtype=np.int32)].set(array, mode="drop")
    return List(buffer, at + count, held.dtype)


def fitted(scope: Any, loop: Loop, most: int | None) -> Callable[[Any, Any], Any]:
    """The function that gives such Lists room for all iterations; Refusal if their number is not known."""

    def with_room(start: Any, result: Any) -> Any:
        if most is None:
            raise scope.refusal(loop.condition, UNBOUNDED, scope.feeds_behind(loop.condition.name))
        return lists.fitted(start, result, most)

    return with_room


def are_all(scope: Any, name: str) -> bool:
    """Whether an iteration appends as many rows as there is room for."""
    return not isinstance(scope.value(scope.raw(scope.nodes[name].inputs[1])), Rows)


def closed(held: List, is_full: bool) -> Any:
    """A variable's last value."""
    return held.buffer if is_full else Rows(held.buffer, held.length)
