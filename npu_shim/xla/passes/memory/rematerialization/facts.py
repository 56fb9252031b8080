"""Reads a step's GraphDef into what planning needs: nodes in topological order, with the shapes of their results."""

from __future__ import annotations

import math
from typing import Any, Mapping

from npu_shim.rewriter.graph.arguments import controls, data, output_of, source_of
from npu_shim.xla.passes.legalize import order
from npu_shim.xla.passes.memory.rematerialization import table
from npu_shim.xla.passes.memory.rematerialization.step import Node, Result, Step, Tensor
from npu_shim.xla.passes.shapes import static_shapes


def read(graph_def: Any, mode: str) -> Step:
    """Returns the Step of a GraphDef with functional control flow and feeds of full shapes.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        mode: "auto", or "memory", for which batched products of two computed values are small.
    """
    graph = static_shapes.loopless(graph_def)
    nodes = order.topological(graph_def)
    place = {node.name: number for number, node in enumerate(nodes)}
    made = []
    for node in nodes:
        operation = graph.get_operation_by_name(node.name)
        inputs = tuple(_tensor(text, place) for text in data(node))
        waits = tuple(place[source_of(text)] for text in controls(node))
        outputs = tuple(map(_result, operation.outputs))
        flops = _flops(node, operation) if node.op in table.PRODUCTS else 0
        made.append(Node(node.name, _op(node), inputs, waits, outputs, flops))
    step = Step(tuple(made))
    small = frozenset(p for p, node in enumerate(made) if node.op in table.BATCHED)
    return Step(tuple(made), small) if mode == "memory" and small else step


def _op(node: Any) -> str:
    """The op's type; a batch normalization that does not train has another name, so that no table contains it."""
    infers = node.op in table.NORMALISED and "is_training" in node.attr and not node.attr["is_training"].b
    return "%s of inference" % node.op if infers else str(node.op)


def _tensor(text: str, place: Mapping[str, int]) -> Tensor:
    name, port = output_of(text)
    return place[name], port


def _result(tensor: Any) -> Result:
    shape = tensor.shape
    return Result(tensor.dtype.name, tuple(shape.as_list()) if shape.is_fully_defined() else None)


def _flops(node: Any, operation: Any) -> int:
    """Twice the product of the sizes of the result and of the summed dimensions; 0 if they are not known."""
    shapes = [tensor.shape for tensor in (*operation.inputs, *operation.outputs)]
    if not all(shape.is_fully_defined() for shape in shapes):
        return 0
    sizes = [shape.as_list() for shape in shapes]
    first, result = sizes[0], sizes[-1]  # tf.einsum may have one input
    summed = first[0] if node.op == "XlaDotV2" else 0  # as late_sums writes it
    if node.op == "MatMul" or node.op in table.BATCHED:
        summed = first[-2 if node.attr["transpose_a" if node.op == "MatMul" else "adj_x"].b else -1]
    if node.op == "Conv2D":
        summed = math.prod(sizes[1][:-1])
    return int(2 * math.prod(result) * summed)
