"""Updates that are seldom skipped: those of a step under a test whether values are finite, as loss scaling makes them.

    cond(finite, v <- update(v, g), nothing)     is on GPUs     v <- finite ? update(v, g) : v

What a branch takes, XLA writes out in front of it: the gradients unscaled, in float32. Computed always, the casts and
products that unscale them are part of the update's kernel, which reads them in 16 bits; and the host need not wait for
the test.
"""

from __future__ import annotations

from typing import Callable, Collection, Iterator, Mapping

from npu_shim.step.frames import MERGES, SWITCHES
from npu_shim.step.graph import Node, Source

TESTS = frozenset(["IsFinite", "IsInf", "IsNan"])
# what a predicate may be made of
LOGIC = frozenset(["All", "Any", "Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Pack", "Reshape"])
PASSES = LOGIC | MERGES | SWITCHES
# in the names of ops
COSTLY = ("LoopCond", "Conv", "MatMul", "Einsum", "Random", "FFT", "Cholesky", "Qr", "Svd", "Inverse", "Eig")
MANY = 10_000  # nodes behind a predicate that are looked at


def is_skipped_seldom(
    predicate: Source, members: Collection[str], nodes: Mapping[str, Node], writes: Callable[[Node], Collection[int]],
    is_light: Callable[[Node], bool],
) -> bool:  # fmt: skip
    """Whether nodes under a predicate are an update that is computed always.

    Args:
        predicate: of the conditional.
        members: names of the nodes of both its sides.
        nodes: of the graph, by name.
        writes: the numbers of a node's inputs through which it may write to a variable.
        is_light: whether a node is of an op that is no call, and has no effect but on variables.
    """
    if not any(node.op in TESTS for node in _behind(nodes[predicate[0]], nodes)):
        return False
    if any(not is_light(nodes[name]) or any(word in nodes[name].op for word in COSTLY) for name in members):
        return False
    return any(writes(nodes[name]) for name in members)


def _behind(first: Node, nodes: Mapping[str, Node]) -> Iterator[Node]:
    """The nodes that a predicate is computed of, through PASSES, with it."""
    pending, seen = [first.name], {first.name}
    while pending and len(seen) < MANY:
        node = nodes[pending.pop()]
        yield node
        if node.op in PASSES:
            new = {name for name, _ in node.inputs} - seen
            seen |= new
            pending += new
