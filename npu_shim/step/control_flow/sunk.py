"""Loop variables of TensorFlow 1 to which each iteration adds a product, summed behind the loop by one product.

The gradient of a recurrent layer's weights is such a sum: each iteration would read and write all of it, which is
larger than what the iteration computes of its batch.

    while n >= 1:  sum = sum + a^T d     becomes     while n >= 1:  rows_a[n], rows_d[n] = a, d
                                                     sum = sum + rows_a^T rows_d

The order of the sums differs, so that results differ in their last digits; low precision is summed in float32.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step import guards
from npu_shim.step.containers import places
from npu_shim.step.control_flow.counted import behind
from npu_shim.step.frames import NEXTS, SWITCHES
from npu_shim.step.graph import Node
from npu_shim.step.schedule import Loop
from npu_shim.step.values import is_tensor, traced

ADDS = frozenset(["Add", "AddV2", "AddN"])


class Sum(NamedTuple):
    """What an iteration adds: the product, what casts it, and the addition, in order."""

    nodes: tuple[Node, ...]

    @property
    def product(self) -> Node:
        """The MatMul."""
        return self.nodes[0]


class Factors(NamedTuple):
    """What the iterations multiply: [iterations, batch, m] and [iterations, batch, n]."""

    x: Any
    y: Any


def variables(loop: Loop, scope: Any, start: Mapping[str, Any], most: int | None) -> dict[str, Sum]:
    """Merge of a variable -> the Sum, where nothing else in the loop takes it; none where `most` is not known."""
    direct = {item.name for item in loop.items if isinstance(item, Node)}
    sums = {}
    for variable in loop.variables if most is not None else ():
        nodes = _added(loop, variable.merge, variable.following)
        if not nodes or not direct.issuperset(node.name for node in nodes) or not is_tensor(start[variable.merge]):
            continue
        takers = [_users(loop, scope, name) for name in (variable.merge, *(node.name for node in nodes))]
        if takers == [{nodes[-1].name}, *({node.name} for node in nodes[1:]), set()]:
            sums[variable.merge] = Sum(nodes)
    return sums


def _added(loop: Loop, merge: str, following: Any) -> tuple[Node, ...]:
    add = loop.nodes.get(behind(loop, following)[0])
    if add is None or add.op not in ADDS or len(add.inputs) != 2:
        return ()
    others = [source for source in add.inputs if behind(loop, source) != (merge, 0)]
    nodes = [add]
    while len(others) == 1 and others[0][0] in loop.nodes:
        node = loop.nodes[others[0][0]]
        nodes.append(node)
        if node.op == "MatMul":
            is_sum = node.attrs["transpose_a"] and not node.attrs["transpose_b"]
            return tuple(nodes[::-1]) if is_sum else ()
        if node.op not in ("Cast", "Identity"):
            return ()
        others = list(node.inputs)
    return ()


def _users(loop: Loop, scope: Any, name: str) -> set[str]:
    """The nodes that take a value within an iteration, behind Switches."""
    users, pending = set[str](), [name]
    while pending:
        for user in scope.schedule.users.get(pending.pop(), ()):
            node = scope.nodes[user]
            if node.op in SWITCHES:
                pending.append(user)
            elif user in loop.nodes and node not in loop.exits and node.op not in NEXTS:
                users.add(user)
    return users


def leave_out(scope: Any, sums: Iterable[Sum]) -> None:
    """Has an iteration not compute these sums."""
    names = [node.name for sum_ in sums for node in sum_.nodes]
    scope.values.update(dict.fromkeys(names, np.float32(0)))
    scope.given = scope.given.union(names)


def following(scope: Any, sum_: Sum, held: Any, number: Any) -> Any:
    """What an iteration makes of a variable: Factors, or a sum where that is smaller than they are.

    Args:
        scope: of the iteration, in which the sums are left out.
        sum_: the Sum.
        held: Factors, or in a first pass what it begins with.
        number: of the iteration.
    """
    x, y = (_factor(scope, source) for source in sum_.product.inputs)
    if isinstance(held, Factors):
        return Factors(places.put(held.x, number, x), places.put(held.y, number, y))
    if x.size + y.size < held.size:
        return Factors(x[None], y[None])
    scope.given = scope.given.difference(node.name for node in sum_.nodes)
    scope.interpret(sum_.nodes)
    return scope.carried((sum_.nodes[-1].name, 0))


def _factor(scope: Any, source: Any) -> Any:
    value, guard = traced(scope.value(scope.raw(source))), guards.guard_of(scope, source)
    return guards.chosen(scope.predicates, guard, value, jnp.zeros_like(value)) if guard else value


def with_room(start: Any, result: Mapping[str, Any], most: int) -> Any:
    """The first values of a loop's variables, with room for the Factors of all its iterations."""
    empty = lambda part: jnp.zeros((most, *part.shape[1:]), part.dtype)  # noqa: E731
    return {
        merge: Factors(*map(empty, result[merge]))
        if isinstance(result[merge], Factors) and not isinstance(value, Factors) else value
        for merge, value in start.items()
    }  # fmt: skip


def closed(start: Any, last: Any) -> Any:
    """A variable's last value."""
    if not isinstance(last, Factors):
        return last
    x, y = (part.reshape((-1, part.shape[-1])) for part in last)
    start = traced(start)
    total = lax.dot_general(x, y, (((0,), (0,)), ((), ())), preferred_element_type=start.dtype)
    return start + total
