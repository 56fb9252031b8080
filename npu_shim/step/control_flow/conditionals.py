"""Conditionals of TensorFlow 1 as lax.cond, so that only the side that is taken is computed.

A Merge is what both sides give. Anything else of a side that others take, as a gradient's branch takes what the forward
branch computed, is given too, zeros by the other side: whoever takes it lives on the same side. Where a conditional
cannot be one (a Merge gives several shapes, ...), both sides are computed, and Merges select (`guards`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import guards, sizes
from npu_shim.step.branches import Conditional
from npu_shim.step.control_flow import joining, traced_loops
from npu_shim.step.graph import Text
from npu_shim.step.refusals import Refusal, Unsupported
from npu_shim.step.values import DEAD, Dims, Handle, Reference, is_known


class Given(NamedTuple):
    """What a side gives.

    Attributes:
        merged: what each Merge gives, and the number of its input.
        kept: side -> name -> what is traced of each output of a node.
        predicates: side -> the traced predicates that its Switches name.
    """

    merged: list[Any]
    kept: dict[bool, Any]
    predicates: dict[bool, Any]


def run(scope: Any, unit: Conditional) -> None:
    """Interprets a conditional; its Merges and what is kept of its sides have their values then."""
    key = guards.key_of(scope, unit.predicate)
    predicate = scope.predicates.get(key)
    if predicate is None:  # known, or on a side that is not taken
        scope.interpret(unit.items)
        return
    cells, facts = dict(scope.run.cells), dict(scope.run.facts)
    sides = [_Side(scope, unit, key, side) for side in (False, True)]
    try:
        given = traced_loops.branched(scope.run, predicate, [side.given for side in sides], _joined, _filled)
        merged = [_merged(sides, name, *value) for name, value in zip(_merges(unit), given.merged)]
    except (Refusal, ValueError, TypeError):
        scope.run.cells, scope.run.facts = cells, facts
        scope.interpret(unit.items)
        return
    for side in sides:
        side.leave(given)
    for name, value in zip(_merges(unit), merged):
        scope.values[name] = value
        first, second = (side.inner.guard(name) for side in sides)
        scope.guards[name] = tuple(part for part in first if part in second)


def _merges(unit: Conditional) -> list[str]:
    return [name for name in unit.kept if name not in unit.on]


class _Side:
    """One side of a conditional.

    Attributes:
        inner: the scope in which it is interpreted, where its predicate is decided.
    """

    def __init__(self, scope: Any, unit: Conditional, key: Any, side: bool) -> None:
        self._scope, self._unit, self._key, self._side = scope, unit, key, side
        self.inner: Any = None

    def given(self) -> Given:
        """Interprets it."""
        inner = self.inner = self._decided()
        inner.interpret(self._unit.sides[self._side])
        merged = [inner.values[name] for name in _merges(self._unit)]
        if any(value is DEAD for value in merged):
            raise Unsupported("a side of its conditional gives nothing")
        pairs = [(None if _is_name(raw) else inner.value(raw), at) for raw, at in merged]
        kept = {name: [_numbers(part) for part in _outputs(inner.values[name])] for name in self._kept()}
        known = self._scope.predicates
        new = {key: value for key, value in inner.predicates.items() if known.get(key) is not value}
        return Given(pairs, {self._side: kept}, {self._side: new})

    def _decided(self) -> Any:
        inner = self._scope.inner({})
        inner.is_unrolled, inner.settles, inner.is_certain = False, True, False
        inner.decided[self._key] = self._side
        for place, guard in self._scope.guards.items():
            if (self._key, not self._side) in guard:
                _bury(inner.values, place)
            inner.guards[place] = tuple(part for part in guard if part[0] != self._key)
        inner.values.update((name, DEAD) for name, side in self._unit.on.items() if side is not self._side)
        return inner

    def _kept(self) -> list[str]:
        on, values = self._unit.on, self.inner.values
        return [name for name in self._unit.kept if on.get(name) is self._side and name in values]

    def leave(self, given: Given) -> None:
        """Gives the scope around it what is kept of it."""
        scope, inner = self._scope, self.inner
        for name, numbers in given.kept[self._side].items():
            parts = tuple(map(_restored, _outputs(inner.values[name]), numbers))
            scope.values[name] = parts if type(inner.values[name]) is tuple else parts[0]
        scope.predicates.update(given.predicates[self._side])
        scope.bounds.update(inner.bounds)
        own = (self._key, self._side)
        for place in (*self._unit.on, *inner.guards):
            if self._unit.on.get(place[0] if isinstance(place, tuple) else place) is self._side:
                scope.guards[place] = tuple(sorted({*inner.guards.get(place, scope.around), own}))


def _bury(values: dict[str, Any], place: Any) -> None:
    """Marks a node, or an output of a Switch, as dead."""
    name = place[0] if isinstance(place, tuple) else place
    if isinstance(place, tuple) and type(values.get(name)) is tuple:
        values[name] = tuple(DEAD if at == place[1] else value for at, value in enumerate(values[name]))
    else:
        values[name] = DEAD


# -- what sides give ---------------------------------------------------------------------------------------------------


def _is_name(raw: Any) -> bool:
    return isinstance(raw, (Handle, Reference, Text))


def _merged(sides: list[_Side], name: str, value: Any, at: Any) -> Any:
    """What a Merge gives: what both sides call by one name, take from one place, or know, as it is."""
    one, other = (side.inner.values[name][0] for side in sides)
    if one is other or (_is_name(one) and one == other):
        return one, at
    if _is_name(one) or _is_name(other):
        raise Unsupported("its branches give different variables")
    is_same = is_known(one, other) and one.dtype == other.dtype and np.array_equal(one, other)
    return one if is_same else value, at


def _outputs(value: Any) -> Any:
    return value if type(value) is tuple else (value,)


def _numbers(raw: Any) -> Any:
    """What is traced of a value."""
    if isinstance(raw, Handle):
        return raw.instance
    if isinstance(raw, Dims):
        return list(sizes.counts_of(raw))
    if isinstance(raw, Reference) and raw.view is not None:
        raise Unsupported("it takes a view of a variable from a conditional")
    return None if _is_name(raw) or raw is DEAD or is_known(raw) else raw


def _restored(raw: Any, numbers: Any) -> Any:
    """A value with what is traced of it."""
    if isinstance(raw, Handle):
        return raw._replace(instance=numbers)
    if isinstance(raw, Dims):
        return sizes.with_counts(raw, numbers)
    return raw if _is_name(raw) or raw is DEAD or is_known(raw) else numbers


def _joined(results: Any) -> Given:
    """What both sides give, as one would give it: shapes and dtypes."""
    one, other = results
    values = joining.joined([[value for value, _ in side.merged] for side in results])
    merged = [(value, at) for value, (_, at) in zip(values, one.merged)]
    return Given(merged, {**one.kept, **other.kept}, {**one.predicates, **other.predicates})


def _filled(given: Given, like: Given) -> Given:
    """What a side gives, in the form of `_joined`: zeros for what the other one keeps."""
    values = joining.filled([value for value, _ in given.merged], [value for value, _ in like.merged])
    merged = [(value, at) for value, (_, at) in zip(values, given.merged)]
    zeros = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), (like.kept, like.predicates))
    return Given(merged, {**zeros[0], **given.kept}, {**zeros[1], **given.predicates})
