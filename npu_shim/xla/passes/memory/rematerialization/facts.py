"""Reads a step's module into what planning needs: nodes in topological order, with the shapes of their results."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Graph
from npu_shim.rewriter.ir.graph import Node as Op
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.memory.rematerialization import table
from npu_shim.xla.passes.memory.rematerialization.step import Node, Result, Step
from npu_shim.xla.passes.shapes import static_shapes

NAME = attrgetter("name")


def read(module: Module, mode: str) -> Step:
    """Returns the Step of a module with functional control flow and feeds of full shapes.

    Args:
        module: a Module.
        mode: "auto", or "memory", for which batched products of two computed values are small.
    """
    inferred = static_shapes.loopless(graphdef.write(module))
    nodes = _in_order(module.graph)
    place = {node: number for number, node in enumerate(nodes)}
    made = []
    for node in nodes:
        operation = inferred.get_operation_by_name(node.name)
        inputs = tuple([(place[value.node], value.index) for value in node.inputs])
        waits = tuple([place[source] for source in node.controls])
        outputs = tuple(map(_result, operation.outputs))
        flops = _flops(node, operation) if node.op in table.PRODUCTS else 0
        made.append(Node(node.name, _op(node), inputs, waits, outputs, flops))
    step = Step(tuple(made))
    small = frozenset(p for p, node in enumerate(made) if node.op in table.BATCHED)
    return Step(tuple(made), small) if mode == "memory" and small else step


def _in_order(graph: Graph) -> list[Op]:
    """The nodes, each behind its sources, depth first in the order of their names."""
    order: list[Op] = []
    is_done: dict[Op, bool] = {}
    for start in sorted(graph, key=NAME):
        stack = [] if start in is_done else [start]
        while stack:
            node = stack[-1]
            if node not in is_done:
                is_done[node] = False
                stack += [source for source in sorted(node.sources(), key=NAME) if source not in is_done]
                continue
            stack.pop()
            if not is_done[node]:
                is_done[node] = True
                order.append(node)
    return order


def _op(node: Op) -> str:
    """The op's type; a batch normalization that does not train has another name, so that no table contains it."""
    infers = node.op in table.NORMALISED and not node.attrs.get("is_training", True)
    return "%s of inference" % node.op if infers else node.op


def _result(tensor: Any) -> Result:
    shape = tensor.shape
    return Result(tensor.dtype.name, tuple(shape.as_list()) if shape.is_fully_defined() else None)


def _flops(node: Op, operation: Any) -> int:
    """Twice the product of the sizes of the result and of the summed dimensions; 0 if they are not known."""
    shapes = [tensor.shape for tensor in (*operation.inputs, *operation.outputs)]
    if not all(shape.is_fully_defined() for shape in shapes):
        return 0
    sizes = [shape.as_list() for shape in shapes]
    first, result = sizes[0], sizes[-1]  # tf.einsum may have one input
    summed = first[0] if node.op == "XlaDotV2" else 0  # as late_sums writes it
    if node.op == "MatMul" or node.op in table.BATCHED:
        summed = first[-2 if node.attrs.get("transpose_a" if node.op == "MatMul" else "adj_x") else -1]
    if node.op == "Conv2D":
        summed = math.prod(sizes[1][:-1])
    return int(2 * math.prod(result) * summed)
