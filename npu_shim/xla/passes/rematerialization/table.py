"""Which ops may be computed again. Data only.

An op that is in none of these tables is computed once: gathers, pools, random ops, and whatever reads or writes state.
"""

# the same elements in another shape or under another name
VIEWS = frozenset(["EnsureShape", "ExpandDims", "Identity", "PreventGradient", "Reshape", "Snapshot", "Squeeze"])
# one result element from one element of each input; XLA computes these again by itself
LIGHT = VIEWS | frozenset([
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "BiasAddV1", "BroadcastTo", "Cast", "Ceil", "ClipByValue",
    "Equal", "Floor", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "LeakyRelu", "Less",
    "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "NotEqual",
    "OnesLike", "Pow", "Relu", "Relu6", "Select", "SelectV2", "Sign", "Square", "SquaredDifference",
    "StopGradient", "Sub", "ZerosLike",
])  # fmt: skip
# the same, but XLA keeps their results
HEAVY = frozenset([
    "Acos", "Asin", "Atan", "Cos", "Cosh", "Div", "DivNoNan", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Inv",
    "Log", "Log1p", "MulNoNan", "RealDiv", "Reciprocal", "Rsqrt", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh", "Xdivy", "Xlogy",
])  # fmt: skip
ELEMENTWISE = LIGHT | HEAVY
# each is a pass of its own over its input
REDUCTIONS = frozenset(["LogSoftmax", "Max", "Mean", "Min", "Softmax", "Sum"])
NORMALISED = frozenset(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
# read their inputs once, so that what is cheap before them needs no memory
GRADIENTS = frozenset([
    "EluGrad", "InvGrad", "LeakyReluGrad", "ReciprocalGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "SeluGrad",
    "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "SqrtGrad", "TanhGrad",
])  # fmt: skip
FUSED = ELEMENTWISE | REDUCTIONS | GRADIENTS
BATCHED = frozenset(["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"])
PRODUCTS = BATCHED | frozenset([
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropFilterV2",
    "Conv3DBackpropInputV2", "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput", "Einsum", "MatMul",
])  # fmt: skip
CALLS = frozenset([
    "Case", "If", "NpuShimAttention", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf",
    "StatelessWhile", "While",
])  # fmt: skip
STAGES = PRODUCTS | CALLS
# what stands for the op of a node in a loop or in a side of a conditional of TensorFlow 1, and for what leaves these
ENCLOSED = "enclosed"
LOOP, CONDITIONAL = "While", "If"
CLOSED = CALLS | {ENCLOSED}
# what hands on a reference variable's memory, and a read of one that the step may have written by then
READ, LATE_READ = "ReadVariableOp", "read of a variable that the step has written"
REFERENCES = frozenset(["Variable", "VariableV2"])
# variables, feeds and constants have memory of their own
GIVEN = frozenset(["Const", "Placeholder", "PlaceholderWithDefault", READ, "VarHandleOp"]) | REFERENCES
FLOATS = frozenset(["bfloat16", "float16", "float32", "float64"])
SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "bfloat16": 2, "float16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
