"""Updates that are seldom skipped: those of a step under a test whether values are finite, as loss scaling makes them.

    cond(finite, v <- update(v, g), nothing)     is on GPUs     v <- finite ? update(v, g) : v

What a branch takes, XLA writes out in front of it: the gradients unscaled, in float32. Computed always, the casts and
products that unscale them are part of the update's kernel, which reads them in 16 bits; and the host need not wait for
the test.
"""

from __future__ import annotations

import math
from typing import Callable, Collection, Iterator, Mapping

from npu_shim.step.frames import MERGES, SWITCHES
from npu_shim.step.graph import Node, Source

TESTS = frozenset(["IsFinite", "IsInf", "IsNan"])
# what a predicate may be made of
LOGIC = frozenset(["All", "Any", "Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Pack", "Reshape"])
PASSES = LOGIC | MERGES | SWITCHES
# in the names of ops
COSTLY = ("LoopCond", "Conv", "MatMul", "Einsum", "Random", "FFT", "Cholesky", "Qr", "Svd", "Inverse", "Eig")
OF_ROWS = ("ResourceScatter", "ResourceSparseApply", "Scatter", "SparseApply")  # how ops begin that write some rows
# a choice reads and writes all rows of a table of which an update writes a few: such tables are at most an eighth of
# what the update writes
PARTS = 8
PASSED_ON = frozenset(["Identity", "RefIdentity"]) | SWITCHES
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
    whole: dict[str, float] = {}
    rows: dict[str, float] = {}
    for name in members:
        node = nodes[name]
        for number in writes(node):
            variable = _variable(node.inputs[number], nodes)
            (rows if node.op.startswith(OF_ROWS) else whole)[variable.name] = _elements(variable)
    part = sum(count for name, count in rows.items() if name not in whole)
    return bool(whole) and PARTS * part <= sum(count for count in whole.values() if count < math.inf)


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


def _variable(source: Source, nodes: Mapping[str, Node]) -> Node:
    node = nodes[source[0]]
    while node.op in PASSED_ON:
        node = nodes[node.inputs[0][0]]
    return node


def _elements(variable: Node) -> float:
    """The number of elements of a variable; infinite where it is not known."""
    shape = variable.attrs.get("shape")
    return math.inf if not isinstance(shape, tuple) or -1 in shape else float(math.prod(shape))
