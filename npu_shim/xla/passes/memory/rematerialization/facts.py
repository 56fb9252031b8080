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
from npu_shim.xla.passes.sizes import Sizes

NAME = attrgetter("name")


def read(module: Module, mode: str, sizes: Sizes) -> Step:
    """Returns the Step of a module with functional control flow and feeds of full shapes.

    Args:
        module: a Module.
        mode: "auto", or "memory", for which batched products of two computed values are small.
        sizes: of its tensors.
    """
    ops = _in_order(module.graph)
    place = {node: number for number, node in enumerate(ops)}

    def results(number: int) -> tuple[Result, ...]:
        return tuple([Result(dtypes.name(dtype), dims) for dtype, dims in sizes.results(ops[number])])

    nodes: list[Node] = []
    for number, op in enumerate(ops):
        inputs = tuple([(place[value.node], value.index) for value in op.inputs])
        flops = 0
        if mode == "memory" and op.op in table.PRODUCTS:  # no other mode runs a product again
            flops = _flops(op, [*(results(source)[port].sizes for source, port in inputs), results(number)[-1].sizes])
        waits = tuple([place[source] for source in op.controls]) if op.controls else ()
        nodes.append(Node(op.name, _op(op), inputs, waits, flops))
    small = frozenset(number for number, node in enumerate(nodes) if mode == "memory" and node.op in table.BATCHED)
    return Step(tuple(nodes), results, small)


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
                stack += sorted((source for source in node.sources() if source not in is_done), key=NAME)
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
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return 0
    first, result = known[0], known[-1]  # tf.einsum may have one input
    summed = first[0] if node.op == "XlaDotV2" else 0  # as gradient_sinking writes it
    if node.op == "MatMul" or node.op in table.BATCHED:
        summed = first[-2 if node.attrs.get("transpose_a" if node.op == "MatMul" else "adj_x") else -1]
    if node.op == "Conv2D":
        summed = math.prod(known[1][:-1])
    return int(2 * math.prod(result) * summed)
