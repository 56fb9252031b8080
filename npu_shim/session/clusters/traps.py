"""Chooses the nodes that stay out of a session's XLA clusters, so that no cluster is recompiled for every batch.

XLA compiles a cluster for the shapes of its inputs. A cluster must not hold ops that derive shapes from data:

    i = Where(x)           as many rows as x has values: i is out, and so is what takes its shape from i
    m = Range(0, Max(n))   XLA must know n when it compiles: a program for every n
    y = Mul(loss, mask)    is in: it has the shape of `loss`, whatever the shape of `mask` depends on

Strings are out as well. TensorFlow itself leaves out everything else that XLA cannot compile.
"""

from __future__ import annotations

import collections
from typing import Any, Sequence

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments

STRING = 7  # tf.string
# the sizes of their results are data
DYNAMIC = frozenset([
    "Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "ListDiff", "DynamicPartition",
    "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5",
    "SparseSlice", "SparseFillEmptyRows", "SparseSegmentSumGradV2", "SparseSegmentMeanGradV2",
    "SparseSegmentSqrtNGradV2",
])  # fmt: skip
SHAPE_OPS = frozenset(["Shape", "ShapeN", "Size", "Rank"])
# op -> inputs that XLA must know when it compiles; they are the sizes of the result
SIZES = {
    "Range": (0, 1, 2), "Fill": (0,), "Reshape": (1,), "Tile": (1,), "BroadcastTo": (1,), "Pad": (1,), "PadV2": (1,),
    "MirrorPad": (1,), "Slice": (2,), "StridedSlice": (1, 2, 3), "OneHot": (1,), "LinSpace": (2,), "ScatterNd": (2,),
    "UnsortedSegmentSum": (2,), "UnsortedSegmentMax": (2,), "UnsortedSegmentMin": (2,), "UnsortedSegmentProd": (2,),
    "RandomUniform": (0,), "RandomStandardNormal": (0,), "TruncatedNormal": (0,), "RandomUniformInt": (0,),
    "TopKV2": (1,), "Conv2DBackpropInput": (0,), "Conv2DBackpropFilter": (1,),
}  # fmt: skip
# the result has the sizes that are given, not those of the other inputs
RESIZES = frozenset([
    *(op for op in SIZES if op not in ("Tile", "Pad", "PadV2", "MirrorPad", "StridedSlice", "TopKV2")),
    "XlaRemoveDynamicDimensionSize",  # the most rows that there may be
])  # fmt: skip
# the result is a scalar, or has the sizes of a variable
REDUCES = frozenset(["Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss", "Size", "Rank"])
# where a mask is combined with data, the result is assumed to have the sizes of the data
BROADCASTS = frozenset([
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "Pow", "SquaredDifference",
])  # fmt: skip
ENDS = ("ResourceScatter", "ResourceSparseApply", "Scatter", "SparseApply", "SparseSegment")  # sparse updates


def left_out(graph_def: Any) -> set[str]:
    """Returns the names of the nodes of a GraphDef that stay out of clusters."""
    return _Spread(graph_def).out


def sized_by_data(graph_def: Any) -> frozenset[str]:
    """Returns the names of the nodes of a GraphDef that may give tensors whose sizes are data."""
    return frozenset(_Spread(graph_def).dynamic)


class _Spread:
    """Propagates from the nodes whose values or sizes are data to those that depend on them."""

    def __init__(self, graph_def: Any) -> None:
        self._inputs = {node.name: list(map(arguments.source_of, arguments.data(node))) for node in graph_def.node}
        self._ops = {node.name: node.op for node in graph_def.node}
        # nodes whose values, and whose sizes, change from step to step
        self._varying: set[str] = set()
        self.dynamic: set[str] = set()
        self.out = {node.name for node in graph_def.node if _has_strings(node)}
        consumers = collections.defaultdict(list)
        for name, sources in self._inputs.items():
            for source in sources:
                consumers[source].append(name)
        pending = collections.deque(self._ops)
        while pending:
            name = pending.popleft()
            before = name in self._varying, name in self.dynamic
            self._visit(name, self._ops[name], self._inputs[name])
            if before != (name in self._varying, name in self.dynamic):
                pending.extend(consumers[name])

    def _visit(self, name: str, op: str, inputs: Sequence[str]) -> None:
        sized_by_data = any(inputs[k] in self._varying for k in SIZES.get(op, ()) if k < len(inputs))
        takes_dynamic = any(source in self.dynamic for source in inputs)
        if sized_by_data or takes_dynamic or op in DYNAMIC:
            self.out.add(name)
        if self._is_varying(op, inputs):
            self._varying.add(name)
        if op in DYNAMIC or sized_by_data or (takes_dynamic and self._keeps_sizes(op, inputs)):
            self.dynamic.add(name)

    def _is_varying(self, op: str, inputs: Sequence[str]) -> bool:
        if op in SHAPE_OPS:
            return any(source in self.dynamic for source in inputs)
        if not inputs:
            return op != "Const"
        if op == "Merge" and any(self._ops.get(source) == "NextIteration" for source in inputs):
            return True  # another value in every iteration
        return any(source in self._varying for source in inputs)

    def _keeps_sizes(self, op: str, inputs: Sequence[str]) -> bool:
        if op in RESIZES or op in REDUCES or op in SHAPE_OPS or op.startswith(ENDS):
            return False
        if op in BROADCASTS:
            return all(source in self.dynamic or self._ops.get(source) == "Const" for source in inputs)
        return True


def _has_strings(node: Any) -> bool:
    definition = tf_internals.op_defs().get(node.op)
    both = [] if definition is None else [*definition.input_arg, *definition.output_arg]
    if any(argument.type == STRING for argument in both):
        return True
    return any(attr.type == STRING or STRING in attr.list.type for attr in node.attr.values())
