"""Finds the Uniques whose size can be static because their consumers cannot tell the difference.

The size of a Unique is the number of distinct values. If the values only index rows, it can have the size of its input,
with HOLES, which index no row:

    i, p = Unique([7, 4, 7])     i = [7, 4], p = [0, 1, 0]     becomes     i = [7, -1, 4], p = [0, 2, 0]
    sums = UnsortedSegmentSum(g, p, Size(i))     ScatterSub(v, i, sums)     leaves out -1 and its sum

XLA's own Unique takes quadratic time (see duplicates.py), and XLA often cannot prove that two data-dependent shapes
match. This walks the graph from a Unique. Each tensor that depends on its size is of one of four kinds, and every op
that takes one must have a rule by which the valid rows keep their values; else the Unique stays.
"""

from __future__ import annotations

from typing import Collection, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.xla.passes.legalize.facts import UNIQUE, Facts

HOLE = -1
IDS, ROWS, SIZE, PLACES = "ids", "rows", "size", "places"  # have holes; arbitrary at holes; shapes; of valid rows
WRITES = ("ResourceScatter", "ResourceSparseApply")
SAME = frozenset(["Identity", "Enter", "Exit", "Switch", "StopGradient", "PreventGradient", "Snapshot"])
PLACES_PASS = SAME | {"Cast", "Reshape"}
OF_SHAPE = frozenset(["OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"])
SIZE_MATH = frozenset(["Identity", "ConcatV2", "ExpandDims", "Pack", "Reshape", "Slice", "Squeeze", "StridedSlice"])
ELEMENTWISE = frozenset([
    "Abs", "Add", "AddV2", "Div", "DivNoNan", "Exp", "Log", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "OnesLike",
    "Pow", "RealDiv", "Reciprocal", "Relu", "Rsqrt", "RsqrtGrad", "Sigmoid", "Sign", "Sqrt", "Square",
    "SquaredDifference", "Sub", "Tanh", "ZerosLike",
])  # fmt: skip
GATHERS = frozenset(["Gather", "GatherV2", "ResourceGather"])
SEGMENTS = frozenset(["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"])
SEGMENT_GRADS = frozenset(["SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"])


class Kind(NamedTuple):
    """What a tensor is to the Unique whose name it carries."""

    what: str
    unique: str


def with_holes(graph: Graph, keep: Collection[Node], facts: Facts) -> list[Node]:
    """Returns the Uniques that can have static sizes.

    Args:
        graph: has v1 control flow.
        keep: the nodes that are fetched or run.
        facts: `facts.Facts` of the graph.
    """
    candidates = [node for node in graph if node.op in UNIQUE and _is_static(node, facts)]
    ordered = order.topological(graph) if candidates else []
    return [node for node in candidates if _Walk(node, facts, keep).passes(ordered)]


def _is_static(node, facts):
    values = facts.tensor(node.inputs[0])
    return values.dtype in (tf.int32, tf.int64) and values.shape.rank == 1 and values.shape.num_elements() is not None


class _Walk:
    """Infers the kinds of the tensors that depend on one Unique."""

    def __init__(self, unique, facts, keep):
        self._unique, self._facts, self._keep = unique, facts, keep
        self._kinds = {}  # Value -> Kind

    def passes(self, ordered):
        """Whether every dependent node has a rule; `ordered` are the graph's nodes in topological order."""
        if self._unique in self._keep:
            return False
        self._give(self._unique, [IDS, PLACES, ROWS], self._unique.name)
        return all(self._takes(node) for node in ordered)

    def _takes(self, node):
        kinds = [self._kinds.get(value) for value in node.inputs]
        sized = [kind for kind in kinds if kind is not None and kind.what != PLACES]
        if not sized:
            return not any(kinds) or self._takes_places(node, kinds)
        if node in self._keep and not node.op.startswith(WRITES):
            return False
        if node.op in UNIQUE:
            self._give(node, [IDS, ROWS, ROWS], node.name)
            self._kinds[node.output(1)] = Kind(ROWS, kinds[0].unique)
            return kinds[0].what == IDS
        rule = next((rule for ops, rule in RULES if node.op in ops), None)
        if node.op.startswith(WRITES):
            rule = _Walk._update
        return rule is not None and rule(self, node, kinds)

    def _takes_places(self, node, kinds):
        """Whether it hands places on, or asks for their shape only: with holes they are other numbers."""
        if node in self._keep or kinds[0] is None:
            return False
        handed_on = node.op in PLACES_PASS and self._give(node, [PLACES, PLACES], kinds[0].unique)
        return handed_on or node.op in OF_SHAPE

    def _give(self, node, whats, unique):
        self._kinds.update((node.output(port), Kind(what, unique)) for port, what in enumerate(whats))
        return True

    def _same(self, node, kinds):
        """Each output, both of a Switch, has the kind of the input."""
        return kinds[0] is not None and not any(kinds[1:]) and self._give(node, [kinds[0].what] * 2, kinds[0].unique)

    def _cast(self, node, kinds):
        whole = kinds[0].what == ROWS or self._facts.tensor(node.value).dtype in (tf.int32, tf.int64)
        return whole and self._same(node, kinds)

    def _size(self, node, kinds):
        return kinds[0].what in (IDS, ROWS) and self._give(node, [SIZE], kinds[0].unique)

    def _size_math(self, node, kinds):
        sizes = [kind for kind in kinds if kind is not None]
        return all(kind.what == SIZE for kind in sizes) and self._give(node, [SIZE], sizes[0].unique)

    def _reshape(self, node, kinds):
        """Rows stay rows if their number of elements stays the same."""
        if kinds[0] is None or kinds[0].what == SIZE:
            return self._reshaped_by_size(node, kinds)
        before, after = self._facts.tensor(node.inputs[0]).shape, self._facts.tensor(node.value).shape
        aligned = before.rank and after.rank and before[1:].num_elements() == after[1:].num_elements() is not None
        return bool(aligned) and self._give(node, [kinds[0].what], kinds[0].unique)

    def _reshaped_by_size(self, node, kinds):
        return kinds[0] is not None and self._size_math(node, kinds)

    def _elementwise(self, node, kinds):
        """Rows of one Unique combine with each other, or with values that are the same for all rows."""
        rows = [kind for kind in kinds if kind is not None]
        if any(kind != rows[0] or kind.what != ROWS for kind in rows):
            return False
        rank = max(self._rank(value) for value, kind in zip(node.inputs, kinds) if kind is not None)
        fit = all(kind or self._is_same_for_rows(value, rank) for value, kind in zip(node.inputs, kinds))
        return fit and self._give(node, [ROWS], rows[0].unique)

    def _rank(self, value):
        rank = self._facts.tensor(value).shape.rank
        return 0 if rank is None else rank

    def _is_same_for_rows(self, value, rank):
        shape = self._facts.tensor(value).shape
        return shape.rank is not None and (shape.rank < max(rank, 1) or (shape.rank == rank and shape[0] == 1))

    def _gather(self, node, kinds):
        """Gathers rows by indices with holes; or gathers valid rows by their indices."""
        if node.op == "GatherV2" and not self._is_first_axis(node):
            return False
        params, indices = kinds[:2]
        if params is None:
            return indices.what == IDS and self._give(node, [ROWS], indices.unique)
        return indices is not None and params == Kind(ROWS, indices.unique) and indices.what == PLACES

    def _is_first_axis(self, node):
        axis = self._facts.constant(node.inputs[2])
        return axis is not None and not axis.any() and not node.attrs.get("batch_dims", 0)

    def _segments(self, node, kinds):
        data, indices = kinds[:2]
        if indices is None or indices.what != PLACES or any(kinds[2:]):
            return False
        return data == Kind(ROWS, indices.unique)

    def _segment_grad(self, node, kinds):
        gradient, indices, segments, size = kinds
        known = gradient is None and segments is None and size is not None and size.what == SIZE
        return known and indices == Kind(PLACES, size.unique) and self._give(node, [ROWS], size.unique)

    def _sum(self, node, kinds):
        """Sums valid rows into the rows of a Unique."""
        data, places, size = kinds
        if size is None or size.what != SIZE or places is None:
            return False
        if data is None:
            fits = places == Kind(PLACES, size.unique)
        else:  # rows of one Unique, summed into those of a Unique of its indices
            fits = data.what == ROWS and data == places
        return fits and self._give(node, [ROWS], size.unique)

    def _update(self, node, kinds):
        """Writes rows at indices; holes are skipped."""
        names = [arg.name for arg in tf_internals.op_defs()[node.op].input_arg]
        given = dict(zip(names, kinds))
        indices, rows = given.pop("indices", None), given.pop("grad" if "grad" in given else "updates", None)
        if indices is None or indices.what != IDS or any(given.values()) or "Nd" in node.op:
            return False
        return rows == Kind(ROWS, indices.unique)


RULES = (
    (frozenset(["Shape", "Size"]), _Walk._size),
    (frozenset(["Reshape"]), _Walk._reshape),
    (frozenset(["Cast"]), _Walk._cast),
    (SAME, _Walk._same),
    (SIZE_MATH, _Walk._size_math),
    (ELEMENTWISE, _Walk._elementwise),
    (GATHERS, _Walk._gather),
    (SEGMENTS, _Walk._segments),
    (SEGMENT_GRADS, _Walk._segment_grad),
    (frozenset(["UnsortedSegmentSum"]), _Walk._sum),
)
