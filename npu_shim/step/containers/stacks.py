"""Stacks, in which a loop of TensorFlow 1 keeps for its gradient what its iterations compute.

A Stack is a cell (buffer [most, ...], top int32), with room for all iterations of the loops around its push that are
not around its making. What is known when it is pushed, and so is the same in each iteration, needs no buffer. In an
unrolled loop it is a tuple of values. A Stack that a loop makes in each iteration, and whose handle an outer Stack
keeps, is one of several in one buffer [total, most, ...].
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import guards, sizes
from npu_shim.step.containers import places, rooms
from npu_shim.step.control_flow import counted
from npu_shim.step.graph import Node
from npu_shim.step.refusals import UNBOUNDED, Unbounded, Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.schedule import HANDS_ON
from npu_shim.step.values import Dims, Handle, is_known, traced

KIND = "stack"
OPEN_SHAPE = "it keeps a shape that data decide"


def make(scope: Any, node: Node, inputs: Sequence[Any]) -> Handle:
    """StackV2."""
    key = "%s:%s%s" % (KIND, scope.path, node.name)
    scope.run.facts[key, "within"] = scope.total
    if scope.serial is None:
        return Handle(KIND, key)
    if not is_kept(scope, node.name):
        scope.run.cells.pop(key, None)
        return Handle(KIND, key)
    if scope.total is None:
        raise Unbounded(UNBOUNDED)
    if scope.run.facts.setdefault((key, "total"), scope.total) != scope.total:
        raise Unsupported("loops of several lengths make it")
    return Handle(KIND, key, jnp.asarray(scope.serial, jnp.int32))


def is_kept(scope: Any, name: str) -> bool:
    """Whether a Stack keeps the handle that a node gives."""
    pending, seen = [name], {name}
    users = scope.schedule.users
    while pending:
        at = pending.pop()
        for user in users.get(at, ()):
            node = scope.nodes[user]
            if node.op in ("StackPushV2", "StackPush") and node.inputs[1][0] == at:
                return True
            if (node.op in HANDS_ON or node.op.startswith("TensorArrayGrad")) and user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def push(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """StackPushV2."""
    handle, pushed = inputs
    value = scope.value(pushed)
    cells, guard = scope.run.cells, scope.guard(node.name)
    old = cells.get(handle.key)
    if scope.is_unrolled and handle.instance is None and not guard and (old is None or type(old) is Kept):
        cells[handle.key] = Kept((*(old or ()), value))
    else:
        _put(scope, guard, handle, _as_number(scope, handle, value))
    counted.keep(scope, node, handle.key)
    return pushed


def _as_number(scope: Any, handle: Handle, value: Any) -> Any:
    """What a Stack keeps of a handle: which instance it is; of a shape, the sizes that data decide."""
    if isinstance(value, Dims):
        if scope.may_unroll:  # in iterations of their own more is known of shapes, as of a row at a counter
            raise Unsupported(OPEN_SHAPE)
        like: Any = sizes.with_counts(value, itertools.repeat(None))
        numbers: Any = sizes.counts_of(value)
    elif isinstance(value, Handle):
        like, numbers = value._replace(instance=None), jnp.int32(0) if value.instance is None else value.instance
    else:
        return value
    if scope.run.facts.setdefault((handle.key, "holds"), like) != like:
        raise Unsupported("it keeps handles that unrolled iterations have made, or several kinds of shapes")
    return numbers


def _put(scope: Any, guard: guards.Guard, handle: Handle, value: Any) -> None:
    cells, facts = scope.run.cells, scope.run.facts
    old = cells.get(handle.key)
    if is_known(value) and old is None:
        before = facts.setdefault((handle.key, "fixed"), value)
        if before is not value and not np.array_equal(before, value):
            raise Unsupported("it keeps several known values")
        return
    if (handle.key, "fixed") in facts:
        raise Unsupported("it keeps a known value and others")
    if type(old) is Kept:
        raise Unsupported("it keeps values of unrolled iterations and of others")
    value = traced(value)
    most = _most(scope, handle)
    if old is None:
        old = _empty(scope, handle, value, most)
    cells[handle.key] = _kept(scope, guard, _pushed(old, value, handle.instance), old)
    if scope.serial is None:  # else the loop around it looks at the end
        rooms.require_enough(scope.run, handle.key)


def _kept(scope: Any, guard: guards.Guard, new: Any, old: Any) -> Any:
    """A cell, as it is where a guard holds: else its top stays, and nobody reads what is written there."""
    return (new[0], guards.chosen(scope.predicates, guard, new[1], old[1])) if guard else new


class Kept(tuple[Any, ...]):
    """What an unrolled loop has pushed, the last at the end."""

    __slots__ = ()


def _most(scope: Any, handle: Handle) -> int:
    """How many values are pushed at most: iterations of all loops between where it was made and where it is used."""
    facts = scope.run.facts
    within = facts[handle.key, "within"]
    if scope.total is None or within is None:
        raise Unbounded(UNBOUNDED)
    most = scope.total // max(within, 1)
    if facts.setdefault((handle.key, "most"), most) != most:
        raise Unsupported("iterations of an unrolled loop push different numbers of values to its stack")
    return int(most)


def _empty(scope: Any, handle: Handle, value: Any, most: int) -> Any:
    facts = scope.run.facts
    leading = (most,) if handle.instance is None else (facts[handle.key, "total"], most)
    buffer = jax.tree.map(lambda part: jnp.zeros((*leading, *part.shape), part.dtype), value)
    return buffer, jnp.zeros(leading[:-1], jnp.int32)


def _pushed(cell: Any, value: Any, instance: Any) -> Any:
    buffer, top = cell
    if instance is None:
        return jax.tree.map(lambda held, part: places.put(held, top, part), buffer, value), top + 1
    at = instance, top[instance]
    jax.tree.map(lambda held, part: places.require_shape(held.shape[2:], part.shape), buffer, value)
    return jax.tree.map(lambda held, part: held.at[at].set(part), buffer, value), top.at[instance].add(1)


def pop(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """StackPopV2."""
    (handle,) = inputs
    counted.take(scope, node, handle.key)
    cells, facts = scope.run.cells, scope.run.facts
    if (handle.key, "fixed") in facts:
        return facts[handle.key, "fixed"]
    old = cells.get(handle.key)
    if old is None:
        raise Unsupported("its stack is empty")
    if type(old) is Kept and not old:
        raise Unsupported("its stack is empty")
    if type(old) is Kept and scope.is_unrolled:
        cells[handle.key] = Kept(old[:-1])
        return old[-1]
    old = buffered(old)
    guard = scope.guard(node.name)
    value, new = _popped(old, handle.instance)
    cells[handle.key] = _kept(scope, guard, new, old)
    if scope.serial is None:
        rooms.require_enough(scope.run, handle.key)
    return _restored(scope, handle, value)


def buffered(cell: Any) -> Any:
    """What an unrolled loop has pushed, as a traced one takes it."""
    if type(cell) is not Kept:
        return cell
    if any(isinstance(value, Handle) for value in cell):
        raise Unsupported("it takes handles that unrolled iterations have kept")
    values = [traced(value) for value in cell]
    shapes = {str(jax.tree.map(jnp.shape, value)) for value in values}
    if len(shapes) > 1:
        raise Unsupported("its stack keeps values of several shapes")
    return jax.tree.map(lambda *parts: jnp.stack(parts), *values), jnp.int32(len(values))


def _popped(cell: Any, instance: Any) -> tuple[Any, Any]:
    buffer, top = cell
    if instance is None:
        return jax.tree.map(lambda held: places.taken(held, top - 1), buffer), (buffer, top - 1)
    at = instance, top[instance] - 1
    return jax.tree.map(lambda held: held[at], buffer), (buffer, top.at[instance].add(-1))


def _restored(scope: Any, handle: Handle, value: Any) -> Any:
    held = scope.run.facts.get((handle.key, "holds"))
    if isinstance(held, Dims):
        return sizes.with_counts(held, value)
    return value if held is None else held._replace(instance=None if _is_alone(scope, held) else value)


def _is_alone(scope: Any, held: Handle) -> bool:
    facts = scope.run.facts
    return not facts[held.key].total if held.key in facts else (held.key, "total") not in facts


RULES = {
    "StackV2": Effect(make),
    "StackPushV2": Effect(push),
    "StackPopV2": Effect(pop),
    "StackCloseV2": Effect(lambda scope, node, inputs: ()),
}
