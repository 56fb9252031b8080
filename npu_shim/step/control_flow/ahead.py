"""What is computed ahead of a loop: sums and products that take less room than what they are made of.

XLA orders a program by its dependencies alone, and may put the gradient of a layer's weights, or the loss, behind the
loop of the next layer's gradient, and keep all activations that these are made of until then. An optimization barrier
ties such results to the first values of the loop, where nothing behind it takes what they are made of.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp

from npu_shim.step import schedule
from npu_shim.step.graph import Node, Source

SUMS = frozenset([  # they give less than they take, often
    "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAddGrad", "Conv2DBackpropFilter", "Conv3DBackpropFilterV2",
    "Einsum", "L2Loss", "MatMul", "Mean", "Sum",
])  # fmt: skip
GIVEN = schedule.READS | {"Placeholder", "Const"}  # what is there all the time
HANDS_ON = frozenset(["Cast", "Identity", "Reshape"])


def tied(scope: Any, inside: Mapping[str, Node], start: Any) -> Any:
    """The first values of a loop, behind what is computed ahead of it; the scope has its values from there on.

    Args:
        scope: the Scope in which the loop stands.
        inside: the loop's nodes in it, name -> Node.
        start: a pytree.
    """
    if scope.serial is not None:  # a loop in a loop keeps little
        return start
    leaves, tree = jax.tree.flatten(start)
    behind = _first_values(leaves)
    ahead = {node.name: scope.values[node.name] for node in _ahead(scope, inside)}
    if not ahead or not behind:
        return start
    again = [node for name in ahead for node in _handed_on(scope, name)]
    behind, ahead = jax.lax.optimization_barrier((behind, ahead))
    scope.ahead.update(ahead)
    scope.values.update(ahead)
    scope.interpret(again)
    return jax.tree.unflatten(tree, [behind.get(at, leaf) for at, leaf in enumerate(leaves)])


def _first_values(leaves: Sequence[Any]) -> dict[int, Any]:
    """What to tie of a loop's first values: floats that are computed, else the smallest that are known.

    XLA should know where a counter starts, and that a sum does at zero.
    """
    floats = {at: leaf for at, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    computed = {at: leaf for at, leaf in floats.items() if isinstance(leaf, jax.Array)}
    smallest = sorted(floats, key=lambda at: int(floats[at].size))[:1]
    return computed or {at: jnp.asarray(floats[at]) for at in smallest}


def _ahead(scope: Any, inside: Mapping[str, Node]) -> Iterator[Node]:
    for node in scope.nodes.values():
        is_sum = node.op in SUMS and node.name not in scope.ahead and _is_plain(scope, node.name)
        if is_sum and _is_taken_later(scope, node.name, inside):
            size = scope.values[node.name].nbytes
            if any(_is_freed(scope, source, size) for source in node.inputs):
                yield node


def _is_plain(scope: Any, name: str) -> bool:
    return isinstance(scope.values.get(name), jax.Array) and not scope.guard(name)


def _handed_on(scope: Any, name: str) -> Iterable[Node]:
    """The nodes that hand on what a node gives, and have been computed, in their order."""
    for user in scope.schedule.users.get(name, ()):
        if scope.nodes[user].op in HANDS_ON and _is_plain(scope, user):
            yield scope.nodes[user]
            yield from _handed_on(scope, user)


def _is_taken_later(scope: Any, name: str, inside: Mapping[str, Node]) -> bool:
    """Whether something behind the loop takes what a node gives, and the loop does not."""
    names = {name, *(node.name for node in _handed_on(scope, name))}
    takers = {user for at in names for user in scope.schedule.users.get(at, ())} - names
    fetched = {at for at, _ in scope.schedule.graph.results.values()}
    is_left = any(user not in scope.values for user in takers) or bool(names & fetched)
    return is_left and not takers & inside.keys()


def _is_freed(scope: Any, source: Source, size: int) -> bool:
    """Whether a value is larger than `size`, and all that take it have been computed."""
    name = schedule.behind(source[0], scope.nodes)
    value = scope.raw(source)
    is_kept = not isinstance(value, jax.Array) or scope.nodes[name].op in GIVEN
    return not is_kept and value.nbytes > size and all(user in scope.values for user in scope.schedule.users[source[0]])
