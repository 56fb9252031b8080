"""Loops of TensorFlow 1: a frame as lax.while_loop, or iteration by iteration.

A loop is unrolled if it runs once at most, or where the traced form refuses (a variable that changes its shape, a value
that must be known) and the count is known. Where Stacks keep shapes that data decide, the unrolled form is tried first,
since more is known in it.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step import assumed, guards
from npu_shim.step.containers import stacks
from npu_shim.step.control_flow import ahead, appended, counted, traced_loops, trips
from npu_shim.step.graph import Node
from npu_shim.step.refusals import Refusal, Unsupported
from npu_shim.step.schedule import Loop
from npu_shim.step.values import DEAD, HANDLES

UNROLLED = 256  # iterations that are unrolled at most
TAKEN, LEFT = np.bool_(True), np.bool_(False)


def run(scope: Any, loop: Loop) -> None:
    """Interprets a loop; its Exits have their values then."""
    for node in loop.enters:
        scope.values[node.name] = scope.raw(node.inputs[0])
        _note_guard(scope, node)
    scope.values.update(dict.fromkeys(loop.idle, np.float32(0)))
    if any(scope.values[node.name] is DEAD for node in loop.enters):
        scope.values.update((node.name, DEAD) for node in loop.exits)
        return
    guard = _guard(scope, loop)
    for variable in loop.constant:
        scope.values[variable.merge] = (scope.raw(variable.start), np.int32(0))
        scope.guards[variable.merge] = guard
    start = {variable.merge: scope.raw(variable.start) for variable in loop.variables}
    count = trips.of_frame(loop, scope, start, scope.table)
    if not count.is_exact and not guard:
        count = counted.told(scope, loop, start, count.most is not None) or count
    if count.most is None:
        count = counted.downwards(scope, loop)
    known = {} if guard else _known_last(scope, loop, start, count)
    last = _looped(scope, loop, start, count, guard)
    if count.most and not count.is_exact and not guard:
        known.update(assumed.maxima(scope, loop, start, last))
    _leave(scope, loop, {**last, **known}, guard)


def _known_last(scope: Any, loop: Loop, start: dict[str, Any], count: trips.Trips) -> dict[str, Any]:
    """The last values of loop variables, as far as they are known."""
    if count.most is None:
        return {}
    numbers = counted.last(scope, loop, start, count.most)
    counted.note(scope, loop, numbers)
    if not count.is_exact:
        return {}
    settled = trips.settled(loop, scope, start, scope.table) if count.most else {}
    return {**settled, **numbers, **count.last}


def _note_guard(scope: Any, node: Node) -> None:
    parts = dict(guards.guard_of(scope, node.inputs[0]))
    for name in node.controls:
        parts.update(scope.guards.get(name, ()))
    if parts:
        scope.guards[node.name] = tuple(sorted(parts.items()))


def _guard(scope: Any, loop: Loop) -> guards.Guard:
    parts: dict[Any, bool] = {}
    for variable in (*loop.variables, *loop.constant):
        parts.update(scope.guards.get(variable.start[0], ()))
    return tuple(sorted(parts.items()))


def _looped(scope: Any, loop: Loop, start: dict[str, Any], count: trips.Trips, guard: guards.Guard) -> Any:
    """The last values of the loop variables."""
    most = count.most if count.is_exact and not guard else None
    if most is not None and most <= 1:
        return _unrolled(scope, loop, start, most)
    may_unroll = _may_unroll(count, guard)
    ways = [lambda: _traced(scope, loop, start, count, guard, may_unroll)]
    if most is not None and may_unroll:
        ways.append(lambda: _unrolled(scope, loop, start, most))
        ways.append(lambda: _traced(scope, loop, start, count, guard))
    return _first_taken(scope, loop, ways)


def _first_taken(scope: Any, loop: Loop, ways: Sequence[Callable[[], Any]]) -> Any:
    """What a loop gives in the first of several ways that is not refused; Refusal, as of the second where there is one.

    The third is tried only where the first was refused for the sake of the second.
    """
    cells, facts, refusals = dict(scope.run.cells), dict(scope.run.facts), list[Exception]()
    for way in ways:
        try:
            return way()
        except (Refusal, Unsupported) as reason:
            refusals.append(reason)
        if len(refusals) == 2 and stacks.OPEN_SHAPE not in str(refusals[0]):
            break
        scope.run.cells, scope.run.facts = dict(cells), dict(facts)
    last = refusals[min(len(refusals), 2) - 1]
    if isinstance(last, Refusal):
        raise last
    raise scope.refusal(loop.condition, "loop '%s': %s" % (loop.frame, last)) from last


def _may_unroll(count: trips.Trips, guard: guards.Guard) -> bool:
    return count.most is not None and count.is_exact and not guard and count.most <= UNROLLED


def _iteration(scope: Any, loop: Loop, values: dict[str, Any], guard: guards.Guard) -> Any:
    inner = scope.inner({merge: (value, np.int32(0)) for merge, value in values.items()})
    inner.guards.update((merge, guard) for merge in values if guard)
    inner.settles = True
    return inner


def _pass(scope: Any, loop: Loop, taken: Any, items: Any) -> None:
    """Interprets items with the loop's condition fixed."""
    scope.values[loop.condition.name] = taken
    scope.given = scope.given | {loop.condition.name}
    scope.interpret(items)


def _traced(
    scope: Any, loop: Loop, start: dict[str, Any], count: trips.Trips, guard: guards.Guard, may_unroll: bool = False
) -> Any:
    values = {merge: scope.value(raw) for merge, raw in start.items()}
    growing, filled = appended.variables(loop, scope, values), dict[str, bool]()
    values.update((merge, appended.opened(values[merge])) for merge in growing)
    for merge, value in values.items():
        if isinstance(value, HANDLES):
            raise scope.refusal(scope.nodes[merge], "a handle changes from iteration to iteration")

    finals = counted.ranges(scope, loop, start, count)

    def condition(carried: Any, number: Any) -> Any:
        inner = _iteration(scope, loop, carried, guard)
        inner.interpret(loop.head)
        go = jnp.reshape(jnp.asarray(inner.raw((loop.condition.name, 0))), ())
        return jnp.logical_and(go, guards.holds(scope.predicates, guard)) if guard else go

    def body(carried: Any, number: Any) -> Any:
        inner = _iteration(scope, loop, carried, guard)
        inner.counts(number, count.most)
        inner.is_certain = inner.is_certain and count.is_exact
        inner.may_unroll = may_unroll
        inner.finals = {} if guard else finals
        if count.most is None:
            inner.bounding = (*inner.bounding, *scope.integers_behind(loop.condition.name))
        appended.leave_out(inner, growing.values())
        _pass(inner, loop, TAKEN, loop.items)
        filled.update((merge, appended.are_all(inner, name)) for merge, name in growing.items())
        return {
            variable.merge: appended.with_rows(inner, carried[variable.merge], growing[variable.merge])
            if variable.merge in growing else inner.carried(variable.following)
            for variable in loop.variables
        }  # fmt: skip

    known = count._replace(is_exact=count.is_exact and not guard)
    fitted = appended.fitted(scope, loop, count.most) if growing else None
    values = ahead.tied(scope, loop.nodes, values)
    last = traced_loops.while_loop(scope.run, values, condition, body, known, fitted)
    return {**last, **{merge: appended.closed(last[merge], known.is_exact and filled[merge]) for merge in growing}}


def _unrolled(scope: Any, loop: Loop, start: dict[str, Any], count: int) -> Any:
    values = start
    for number in range(count):
        inner = _iteration(scope, loop, values, ())
        inner.counts(number, count)
        _pass(inner, loop, TAKEN, loop.items)
        values = {variable.merge: inner.raw(variable.following) for variable in loop.variables}
    return values


def _leave(scope: Any, loop: Loop, last: dict[str, Any], guard: guards.Guard) -> None:
    """Gives the Exits their values: what stands between a Switch and an Exit is computed of the last values."""
    inner = _iteration(scope, loop, last, guard)
    _pass(inner, loop, LEFT, loop.tail)
    for node in loop.exits:
        scope.values[node.name] = inner.raw(node.inputs[0])
        if guard:
            scope.guards[node.name] = guard
