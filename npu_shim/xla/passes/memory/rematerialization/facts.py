"""Reads a step's module into what planning needs: nodes in topological order, with the shapes of their results."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Sequence

from npu_shim.rewriter.ir.graph import Graph
from npu_shim.rewriter.ir.graph import Node as Op
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables import dtypes
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
    inferred = static_shapes.of_module(module)
    nodes = _in_order(module.graph)
    place = {node: number for number, node in enumerate(nodes)}
    made: list[Node] = []
    for node in nodes:
        inputs = tuple([(place[value.node], value.index) for value in node.inputs])
        waits = tuple([place[source] for source in node.controls])
        outputs = tuple([Result(dtypes.name(dtype), sizes) for dtype, sizes in inferred.results(node.name)])
        flops = 0
        if node.op in table.PRODUCTS:
            flops = _flops(node, [*(made[source].outputs[port].sizes for source, port in inputs), outputs[-1].sizes])
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


def _flops(node: Op, sizes: Sequence[tuple[int, ...] | None]) -> int:
    """Twice the product of the sizes of the result and of the summed dimensions; 0 if they are not known.

    Args:
        node: a product.
        sizes: of its inputs and of its result.
    """
    known = [each for each in sizes if each is not None]
    if len(known) < len(sizes):
        return 0
    first, result = known[0], known[-1]  # tf.einsum may have one input
    summed = first[0] if node.op == "XlaDotV2" else 0  # as late_sums writes it
    if node.op == "MatMul" or node.op in table.BATCHED:
        summed = first[-2 if node.attrs.get("transpose_a" if node.op == "MatMul" else "adj_x") else -1]
    if node.op == "Conv2D":
        summed = math.prod(known[1][:-1])
    return int(2 * math.prod(result) * summed)
