"""The CPU kernels that are too slow to use in low precision, or that refuse at run time what float32's kernels run.

Measured with scripts/bench_cpu_kernels.py on TensorFlow 2.15.1, 1.15.5 and 2.21.0 (x86-64, two cores with AVX-512,
November 2026; benchmarks/cpu_kernels.md). In float16 products, convolutions and their gradients take 3 to 2,700 times
float32's time, and 2.15.1's convolutions and pools refuse NCHW, groups and, in their gradients, dilation; 3-D pools
have no kernel at all. On the list is what takes longer than float32's kernel between casts. Sums, products of elements
and their like do not: they take about four times float32's time either way. A training step of a BlockLSTM (25 times 8
rows of 512, 256 units, 2.15.1) takes 4.8 s in float16 and 0.09 s between casts.

In bfloat16 the same ops do, though their kernels are fast enough: what these compute depends on the processor. With
AVX-512 or AMX oneDNN's sums are float32, without them Eigen's are rounded to bfloat16 on the way, and TensorFlow 1.15's
products are cut off.
"""

from typing import Dict, FrozenSet

from .dtypes import LOW

_PRODUCTS = (
    "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum",
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropFilterV2", "Conv2DBackpropInput", "Conv2DBackpropInputV2",
    "Conv3D", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2", "Conv3DBackpropInput", "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput",
    "Dilation2D", "Dilation2DBackpropFilter", "Dilation2DBackpropInput",
    "LSTMBlockCell", "LSTMBlockCellGrad", "GRUBlockCell", "GRUBlockCellGrad",
    "BlockLSTM", "BlockLSTMV2", "BlockLSTMGrad", "BlockLSTMGradV2",
)  # fmt: skip
_WINDOWS = (
    "MaxPool", "MaxPoolV2", "MaxPoolGrad", "MaxPoolGradV2", "AvgPool", "AvgPoolGrad",
    "MaxPool3D", "MaxPool3DGrad", "AvgPool3D", "AvgPool3DGrad", "LRN", "LRNGrad", "ResizeBilinear",
)  # fmt: skip
_BIAS = ("BiasAdd", "BiasAddGrad")  # not slower by themselves; they stand between such ops, and sessions round at once
_NORMS = (
    "FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGradV2", "FusedBatchNormGradV3",
    "Sum", "Mean", "Prod", "Max", "Min", "Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits",
    "L2Loss", "Cumsum", "UnsortedSegmentSum",
)  # fmt: skip
_ELEMENTS = (
    "AddN", "SquaredDifference", "Exp", "Log", "Erf", "Tanh", "TanhGrad", "Sigmoid", "SigmoidGrad",
    "ReluGrad", "Relu6", "Relu6Grad",
    "LeakyRelu", "LeakyReluGrad", "Selu", "SeluGrad", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad",
)  # fmt: skip

# op type -> the low dtypes in which a CPU computes it by float32's kernel on rounded values
SLOW: Dict[str, FrozenSet[int]] = dict.fromkeys(_PRODUCTS + _BIAS + _WINDOWS + _NORMS + _ELEMENTS, LOW)

# ops whose results are values of their inputs, their negatives, 0 or 6: of rounded inputs they need no rounding
EXACT = frozenset((
    "Enter", "Switch", "_SwitchN", "Merge", "NextIteration", "Exit",
    "Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics",
    "Reshape", "Squeeze", "ExpandDims", "Transpose", "BroadcastTo", "Reverse", "ReverseV2", "Tile",
    "Concat", "ConcatV2", "Pack", "Unpack", "Split", "SplitV", "Slice", "StridedSlice", "StridedSliceGrad",
    "Pad", "PadV2", "MirrorPad", "Gather", "GatherV2", "GatherNd", "Select", "SelectV2",
    "SpaceToBatch", "SpaceToBatchND", "BatchToSpace", "BatchToSpaceND", "SpaceToDepth", "DepthToSpace",
    "Relu", "ReluGrad", "Relu6", "Relu6Grad", "Neg", "Abs", "Max", "Min", "Maximum", "Minimum",
    "MaxPool", "MaxPoolV2", "MaxPool3D", "ResizeNearestNeighbor",
))  # fmt: skip
