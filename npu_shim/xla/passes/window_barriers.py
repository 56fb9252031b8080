"""Keeps XLA from folding padding into sums over windows, which it does wrongly for one row with zeros on both sides.

    tf.cumsum(tf.pad(row, [[2, 2], [0, 0]]))     for XLA the row in all five places, instead of in the last three

XLA takes each window for one that contains the row, although its own padding makes some that do not (TensorFlow 2.15.1,
JAX 0.12). The gradient of tf.cumsum(x)[2] is such a sum, for five rows. A barrier in front of it hides the padding:

    Cumsum(y)     becomes     Cumsum(XlaOptimizationBarrier(y))
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.memory.rematerialization.apply import BARRIER

RUNNING = frozenset(["Cumsum", "Cumprod"])  # XLA pads these by all rows but one
# op -> number of the input whose windows it sums up; padded by itself where the script says so
POOLS = {"AvgPool": 0, "AvgPool3D": 0, "AvgPoolGrad": 1, "AvgPool3DGrad": 1}
OPS = RUNNING.union(POOLS)
PADS = frozenset(["Pad", "PadV2", "StridedSliceGrad"])


def insert(module: Module, context: Any = None) -> None:
    """Puts barriers in front of running sums, and of pools behind padding, in a graph and its functions.

    Args:
        module: any.
        context: not used.
    """
    for graph in module.graphs_with(OPS.__contains__):
        for node in graph:
            if node.op in RUNNING:
                _guard(node, 0)
            elif node.op in POOLS and behind(node.inputs[POOLS[node.op]], ("Identity", "Cast")).node.op in PADS:
                _guard(node, POOLS[node.op])


def _guard(node: Node, number: int) -> None:
    graph, dtype = node.graph, DType(node.attrs["T"])
    name = graph.free_name(node.name + "/barrier")
    barrier = graph.add(name, BARRIER, [node.inputs[number]], attrs={"T": (dtype,)}, origin=node, before=node)
    node.set_input(number, barrier.value)
