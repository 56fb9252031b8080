"""Ops by what decides the sizes of their results: what values say, their shapes, or inputs that are sizes."""

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
