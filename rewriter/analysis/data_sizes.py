"""Tensors whose sizes are data, and the nodes that such sizes decide.

i = Where(x)           as many rows as x has values: so i, and what takes its shape from i
m = Range(0, Max(n))   a size for every n
y = Mul(loss, mask)    has the shape of `loss`, whatever the shape of `mask` depends on
"""

from __future__ import annotations

import collections
from typing import NamedTuple, Sequence

from ..ir.graph import CONTROL, Graph, Node
from ..tables.sizes import DYNAMIC, SHAPE_OPS, SIZES
from .cache import analysis

# the result has the sizes that are given, not those of the other inputs
RESIZES = frozenset(SIZES) - {"Tile", "Pad", "PadV2", "MirrorPad", "StridedSlice", "TopKV2"}
# the result is a scalar, or has the sizes of a variable
REDUCES = frozenset(["Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss", "Size", "Rank"])
# where a mask is combined with data, the result is assumed to have the sizes of the data
BROADCASTS = frozenset([
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "Pow", "SquaredDifference",
])  # fmt: skip
ENDS = ("ResourceScatter", "ResourceSparseApply", "Scatter", "SparseApply", "SparseSegment")  # sparse updates


class Sizes(NamedTuple):
    """Nodes of a graph.

    Attributes:
        open: those that may give tensors whose sizes are data.
        dependent: those that do, or take such tensors, or are told sizes that are data.
    """

    open: frozenset[Node]
    dependent: frozenset[Node]


@analysis
def of(graph: Graph) -> Sizes:
    """The nodes of a graph whose sizes are data."""
    spread = _Spread(graph)
    return Sizes(frozenset(spread.dynamic), frozenset(spread.dependent))


class _Spread:
    """Propagates from the nodes whose values or sizes are data to those that depend on them."""

    def __init__(self, graph: Graph) -> None:
        # nodes whose values, and whose sizes, change from step to step
        self._varying: set[Node] = set()
        self.dynamic: set[Node] = set()
        self.dependent: set[Node] = set()
        pending = collections.deque(graph)
        while pending:
            node = pending.popleft()
            before = node in self._varying, node in self.dynamic
            self._visit(node, [value.node for value in node.inputs])
            if before != (node in self._varying, node in self.dynamic):
                pending.extend(user for value in node.values() if value.index != CONTROL for user in value.users)

    def _visit(self, node: Node, sources: Sequence[Node]) -> None:
        sizes = SIZES.get(node.op, ())
        is_sized_by_data = any(sources[k] in self._varying for k in sizes if k < len(sources))
        takes_dynamic = not self.dynamic.isdisjoint(sources)
        if is_sized_by_data or takes_dynamic or node.op in DYNAMIC:
            self.dependent.add(node)
        if self._is_varying(node.op, sources):
            self._varying.add(node)
        if node.op in DYNAMIC or is_sized_by_data or (takes_dynamic and self._keeps_sizes(node.op, sources)):
            self.dynamic.add(node)

    def _is_varying(self, op: str, sources: Sequence[Node]) -> bool:
        if op in SHAPE_OPS:
            return not self.dynamic.isdisjoint(sources)
        if not sources:
            return op != "Const"
        if op == "Merge" and any(source.op == "NextIteration" for source in sources):
            return True  # another value in every iteration
        return not self._varying.isdisjoint(sources)

    def _keeps_sizes(self, op: str, sources: Sequence[Node]) -> bool:
        if op in RESIZES or op in REDUCES or op in SHAPE_OPS or op.startswith(ENDS):
            return False
        if op in BROADCASTS:
            return all(source in self.dynamic or source.op == "Const" for source in sources)
        return True
