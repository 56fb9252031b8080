"""Conditionals of TensorFlow 1: under which predicates a value lives.

A Switch whose predicate is known gives DEAD on the side that is not taken, and what takes a dead value is dead. Where
the predicate is traced, what a Switch gives carries a Guard, the predicates (as the graph names them) and sides under
which it lives. What is worth skipping is computed by `control_flow.conditionals`. Of what is left both sides are
computed: a Merge selects by the predicate in which its inputs differ, and a write under a guard keeps the old value
where the guard does not hold. A write to some rows of a table is one to none of them then, so that no other is touched.
"""

from __future__ import annotations

from typing import Any, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import eithers
from npu_shim.step.branches import TRIGGER
from npu_shim.step.control_flow import joining
from npu_shim.step.frames import MERGES, SWITCHES, value_source
from npu_shim.step.graph import Node, Source
from npu_shim.step.values import DEAD, HANDLES, Either, Rows, is_known, traced

Guard = tuple[tuple[Source, bool], ...]  # (predicate, side that is taken), each predicate once


def settle(scope: Any, node: Node) -> bool:
    """Notes the guard of a node; returns whether the node is settled: dead, or a Switch or Merge of a conditional."""
    if node.op in MERGES:
        scope.values[node.name] = merged(scope, node)
        return True
    if node.op == TRIGGER:
        return False
    if _is_dead(scope, node):
        scope.values[node.name] = DEAD
        return True
    guard = _guard(scope, node)
    if guard:
        scope.guards[node.name] = guard
    if node.op in SWITCHES:
        scope.values[node.name] = _switched(scope, node, guard)
        return True
    return False


def _is_dead(scope: Any, node: Node) -> bool:
    values = scope.values
    return any(scope.raw(source) is DEAD for source in node.inputs) or any(
        values.get(name) is DEAD for name in node.controls
    )


def raw(values: Mapping[str, Any], source: Source) -> Any:
    """What stands on an edge."""
    value = values[source[0]]
    return value[source[1]] if type(value) is tuple else value


def key_of(scope: Any, predicate: Source) -> Source:
    """A predicate as guards name it in this activation."""
    return scope.path + predicate[0], predicate[1]


def guard_of(scope: Any, source: Source) -> Guard:
    """The guard of what stands on an edge."""
    guard: Guard = scope.guards.get(source) or scope.guard(source[0])
    return guard


def _guard(scope: Any, node: Node) -> Guard:
    parts: dict[Source, bool] = {}
    for source in node.inputs:
        parts.update(guard_of(scope, source))
    for name in node.controls:
        parts.update(scope.guard(name))
    return tuple(sorted(parts.items()))


def _switched(scope: Any, node: Node, guard: Guard) -> Any:
    given = scope.raw(node.inputs[0])
    predicate = scope.value(scope.raw(node.inputs[1]))
    no, yes = (eithers.of_side(given, predicate, side) for side in (False, True))
    key = key_of(scope, value_source(node.inputs[1], scope.nodes))
    if is_known(predicate) or key in scope.decided:
        return (DEAD, yes) if scope.decided.get(key, predicate) else (no, DEAD)
    sides = dict(guard)
    if key in sides:  # one predicate in another's branch of the same
        return (no, DEAD) if not sides[key] else (DEAD, yes)
    scope.predicates[key] = predicate
    for side in (False, True):
        scope.guards[node.name, int(side)] = tuple(sorted([*guard, (key, side)]))
    return no, yes


def merged(scope: Any, node: Node) -> Any:
    """What a Merge gives: the value of the side that is taken, and its number."""
    alive = [at for at, source in enumerate(node.inputs) if scope.raw(source) is not DEAD]
    if not alive:
        return DEAD
    inherited = [guard_of(scope, node.inputs[at]) for at in alive]
    if len(alive) == 1:
        scope.guards[node.name] = inherited[0]
        return scope.raw(node.inputs[alive[0]]), np.int32(alive[0])
    if len(alive) > 2:
        raise scope.refusal(node, "it merges %d values of traced predicates, expected two" % len(alive))
    return _selected(scope, node, alive, inherited)


def _selected(scope: Any, node: Node, alive: list[int], inherited: list[Guard]) -> Any:
    first, second = (dict(guard) for guard in inherited)
    differing = [key for key in first if key in second and first[key] != second[key]]
    one, other = (scope.raw(node.inputs[at]) for at in alive)
    if not differing and is_known(one, other) and np.array_equal(one, other):
        return one, np.int32(alive[0])  # a constant that waits for neither side, equal to what the other one gives
    if len(differing) != 1:
        raise scope.refusal(node, "it merges values that do not live on the two sides of one predicate")
    key = differing[0]
    common = tuple(sorted((k, side) for k, side in first.items() if k != key and second.get(k) == side))
    scope.guards[node.name] = common
    if not first[key]:
        one, other, alive = other, one, alive[::-1]
    index = jnp.where(scope.predicates[key], np.int32(alive[0]), np.int32(alive[1]))
    return _either(scope, node, key, one, other), index


def _either(scope: Any, node: Node, key: Source, one: Any, other: Any) -> Any:
    """One of two values by a traced predicate; of handles, the one that both are."""
    predicate = scope.predicates[key]
    if one is other or (isinstance(one, HANDLES) and type(one) is type(other) and one == other):
        return one
    one, other = traced(scope.value(one)), traced(scope.value(other))
    like = joining.joined([[one], [other]])
    (one,), (other,) = joining.filled([one], like), joining.filled([other], like)
    shapes = [jax.tree.map(jnp.shape, value) for value in (one, other)]
    if jax.tree.structure(one) != jax.tree.structure(other) or shapes[0] != shapes[1]:
        if all(isinstance(value, (Rows, jax.Array)) for value in (one, other)) and not _is_fed(scope, key):
            return Either(predicate, (other, one))
        text = "its predicate is traced, and the two sides have shapes %s and %s"
        raise scope.refusal(node, text % tuple(shapes), scope.feeds_behind(node.inputs[0][0]))
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), one, other)


def _is_fed(scope: Any, key: Source) -> bool:
    """Whether a predicate is computed of whole numbers that are fed alone: each value has a program of its own then."""
    name = key[0][len(scope.path) :]
    feeds = scope.feeds_behind(name) if name in scope.nodes else []
    return bool(feeds) and len(scope.integers_behind(name)) == len(feeds)


def holds(predicates: Mapping[Source, Any], guard: Guard) -> Any:
    """Whether a guard holds: a traced bool."""
    result: Any = None
    for key, side in guard:
        part = predicates[key] if side else jnp.logical_not(predicates[key])
        result = part if result is None else jnp.logical_and(result, part)
    return result


def kept(predicates: Mapping[Source, Any], guard: Guard, value: Any) -> Rows:
    """Rows, or all of a tensor, where a guard holds, else none of them."""
    rows = value if isinstance(value, Rows) else Rows(traced(value), np.int32(value.shape[0]))
    return rows._replace(count=jnp.where(holds(predicates, guard), rows.count, np.int32(0)))


def chosen(predicates: Mapping[Source, Any], guard: Guard, new: Any, old: Any) -> Any:
    """`new` where a guard holds, else `old`; both of one structure."""
    predicate = holds(predicates, guard)
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), traced(new), traced(old))
