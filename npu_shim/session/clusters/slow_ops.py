"""The ops for which XLA's CPU code is slower than TensorFlow's kernels: on CPUs they stay outside of clusters.

Measured with scripts/bench_xla_ops.py on TensorFlow 2.15.1, x86-64 with two cores, November 2026: benchmarks/xla_ops.md
has the figures, and what they come to in models (ResNet-50's step: 26 times the time without XLA with everything
inside, 3 times with this table).
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Value
from npu_shim.rewriter.ir.module import Module

LIMIT = 1.5  # an op is here if the median of its rows is above
# op type -> how many times longer it takes in a cluster than by TensorFlow's kernel, median over shapes
SLOW = {
    "Conv2D": 1.9,
    "Conv2DBackpropFilter": 3.1,
    "Conv2DBackpropInput": 2.0,
    "Conv3D": 15.1,
    "Conv3DBackpropFilterV2": 26.2,
    "Conv3DBackpropInputV2": 15.6,
    "DepthwiseConv2dNative": 81.8,
    "DepthwiseConv2dNativeBackpropFilter": 123.9,
    "DepthwiseConv2dNativeBackpropInput": 61.5,
    "MaxPool": 6.8,
    "MaxPoolGrad": 2.0,
    "AvgPool": 10.1,
    "AvgPoolGrad": 5.4,
    "MaxPool3D": 2.9,
    "AvgPool3D": 3.2,
    "AvgPool3DGrad": 11.4,
    "LRN": 5.1,
    "FusedBatchNormV3": 11.8,
    "FusedBatchNormGradV3": 11.0,
    "ResizeBilinear": 17.6,
    "ExtractImagePatches": 7.0,
    "Cumsum": 114.7,
    "Cumprod": 16.1,
    "TopKV2": 2.8,
}
BIAS = "BiasAddGrad"  # 21 times longer for images; for the rows of a dense layer, which are cheap, 2 to 3 times
# above the limit alone, but cheap: outside they would cut clusters apart, inside they fuse with what is around them
INSIDE = frozenset([
    "Softmax", "Max", "Mean", "ArgMax", "L2Loss", "Pad", "Transpose", "SpaceToDepth", "Cholesky",
])  # fmt: skip


def excluded(module: Module) -> set[str]:
    """Returns the names of a graph's nodes that stay out of clusters on CPUs: slow ops and calls of such."""
    graph_def = graphdef.write(module)  # protos name all that a node calls, whatever its op
    functions = {function.signature.name: function.node_def for function in graph_def.library.function}
    slow, newly_slow = set(), set(SLOW)
    while newly_slow:  # functions that call what was found, directly or through others
        slow |= newly_slow
        newly_slow = {name for name, nodes in functions.items() if any(_names(node) & slow for node in nodes)} - slow
    calling = {node.name for node in graph_def.node if _names(node) & slow}
    return calling.union(node.name for node in module.graph if node.op == BIAS and _is_of_image(node.inputs[0]))


def _is_of_image(gradient: Value) -> bool:
    """Whether a convolution takes the gradient that a BiasAddGrad takes: it is that of an image.

    dy -> BiasAddGrad, dy -> Identity -> Conv2DBackpropFilter
    """
    return any("Conv" in user.op or (user.op == "Identity" and _is_of_image(user.value)) for user in gradient.users)


def _names(node: Any) -> set[str]:
    """The op of a node, and the functions that it calls."""
    called = (function for attr in node.attr.values() for function in (attr.func, *attr.list.func))
    return {node.op, *(function.name for function in called if function.name)}
