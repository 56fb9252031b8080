"""Stacks, in which a loop of TensorFlow 1 keeps for its gradient what its iterations compute.

A Stack is a cell (buffer [most, ...], top int32), with room for all iterations of the loops around its push that are
not around its making. What is known when it is pushed, and so is the same in each iteration, needs no buffer. In an
unrolled loop it is a tuple of values. A Stack that a loop makes in each iteration, and whose handle an outer Stack
keeps, is one of several in one buffer [total, most, ...].
"""

from __future__ import annotations

from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import guards
from npu_shim.step.graph import Node
from npu_shim.step.refusals import Unbounded, Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.schedule import HANDS_ON
from npu_shim.step.values import Handle, is_known, traced

KIND = "stack"
UNBOUNDED = "it keeps a value of each iteration, and how many there are at most is not known when the step is traced"


def make(scope: Any, node: Node, inputs: Sequence[Any]) -> Handle:
    """StackV2."""
    key = "%s:%s%s" % (KIND, scope.path, node.name)
    scope.run.facts[key, "within"] = scope.total
    if scope.serial is None:
        return Handle(KIND, key)
    if scope.is_unrolled:
        key = "%s#%s" % (key, scope.serial)
        scope.run.facts[key, "within"] = scope.total
        return Handle(KIND, key)
    if not is_kept(scope, node.name):
        scope.run.cells.pop(key, None)
        return Handle(KIND, key)
    if scope.total is None:
        raise Unbounded(UNBOUNDED)
    scope.run.facts[key, "total"] = scope.total
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
    _put(scope, node, handle, _as_number(scope, handle, value))
    return pushed


def _as_number(scope: Any, handle: Handle, value: Any) -> Any:
    """What a Stack keeps of a handle: which instance it is."""
    if not isinstance(value, Handle):
        return value
    scope.run.facts[handle.key, "holds"] = value._replace(instance=None)
    return jnp.int32(0) if value.instance is None else value.instance


def _put(scope: Any, node: Node, handle: Handle, value: Any) -> None:
    cells, facts = scope.run.cells, scope.run.facts
    old, guard = cells.get(handle.key), scope.guard(node.name)
    if scope.is_unrolled and not guard and (old is None or type(old) is Kept):
        cells[handle.key] = Kept((*(old or ()), value))
        return
    if is_known(value) and old is None:
        before = facts.setdefault((handle.key, "fixed"), value)
        if before is not value and not np.array_equal(before, value):
            raise Unsupported("it keeps several known values")
        return
    if (handle.key, "fixed") in facts:
        raise Unsupported("it keeps a known value and others")
    value = traced(value)
    old = _empty(scope, handle, value) if old is None else old
    new = _pushed(old, value, handle.instance)
    cells[handle.key] = guards.chosen(scope.predicates, guard, new, old) if guard else new


class Kept(tuple[Any, ...]):
    """What an unrolled loop has pushed, the last at the end."""

    __slots__ = ()


def _empty(scope: Any, handle: Handle, value: Any) -> Any:
    facts = scope.run.facts
    within = facts[handle.key, "within"]
    if scope.total is None or within is None:
        raise Unbounded(UNBOUNDED)
    most = scope.total // max(within, 1)  # of all loops between where it was made and where it is pushed to
    leading = (most,) if handle.instance is None else (facts[handle.key, "total"], most)
    buffer = jax.tree.map(lambda part: jnp.zeros((*leading, *part.shape), part.dtype), value)
    return buffer, jnp.zeros(leading[:-1], jnp.int32)


def _pushed(cell: Any, value: Any, instance: Any) -> Any:
    buffer, top = cell
    at = top if instance is None else (instance, top[instance])
    buffer = jax.tree.map(lambda held, part: held.at[at].set(part), buffer, value)
    return buffer, (top + 1 if instance is None else top.at[instance].add(1))


def pop(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """StackPopV2."""
    (handle,) = inputs
    cells, facts = scope.run.cells, scope.run.facts
    if (handle.key, "fixed") in facts:
        return facts[handle.key, "fixed"]
    old = cells.get(handle.key)
    if old is None:
        raise Unsupported("its stack is empty")
    if type(old) is Kept and scope.is_unrolled:
        cells[handle.key] = Kept(old[:-1])
        return _restored(scope, handle, old[-1])
    old = buffered(old)
    guard = scope.guard(node.name)
    value, new = _popped(old, handle.instance)
    cells[handle.key] = guards.chosen(scope.predicates, guard, new, old) if guard else new
    return _restored(scope, handle, value)


def buffered(cell: Any) -> Any:
    """What an unrolled loop has pushed, as a traced one takes it."""
    if type(cell) is not Kept:
        return cell
    values = [traced(value) for value in cell]
    shapes = {str(jax.tree.map(jnp.shape, value)) for value in values}
    if len(shapes) > 1:
        raise Unsupported("its stack keeps values of several shapes")
    return jax.tree.map(lambda *parts: jnp.stack(parts), *values), jnp.int32(len(values))


def _popped(cell: Any, instance: Any) -> tuple[Any, Any]:
    buffer, top = cell
    if instance is None:
        return jax.tree.map(lambda held: held[top - 1], buffer), (buffer, top - 1)
    at = instance, top[instance] - 1
    return jax.tree.map(lambda held: held[at], buffer), (buffer, top.at[instance].add(-1))


def _restored(scope: Any, handle: Handle, value: Any) -> Any:
    held = scope.run.facts.get((handle.key, "holds"))
    return value if held is None else held._replace(instance=None if _is_alone(scope, held) else value)


def _is_alone(scope: Any, held: Handle) -> bool:
    return (held.key, "total") not in scope.run.facts


RULES = {
    "StackV2": Effect(make),
    "StackPushV2": Effect(push),
    "StackPopV2": Effect(pop),
    "StackCloseV2": Effect(lambda scope, node, inputs: ()),
}
