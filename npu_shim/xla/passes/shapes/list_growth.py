"""Refuses lists of version 2's TensorArrays that may grow.

XLA's lists keep the length that they are made with, and what is written beyond it overwrites the last item:

    tf.TensorArray(tf.float32, 2, dynamic_size=True).write(3, x)     XLA writes x to item 1 (TensorFlow 2.15.1)

A write is sound where its index is known, or counts the iterations of a loop, and stays below the length.
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.shapes import while_counts
from npu_shim.xla.passes.shapes.list_sizes import Answers, behind

WRITE, GROWS = "TensorListSetItem", "resize_if_index_out_of_bounds"


def require_fixed(module: Module, context: Any = None) -> None:
    """Checks that no list grows.

    Args:
        module: of functional control flow, with Placeholders of full shapes.
        context: not used.

    Raises:
        PlanError: one may; the error names the node that writes to it.
    """
    if not any(map(_may_grow, (node for graph in module.graphs_with(WRITE.__eq__) for node in graph))):
        return
    answers = Answers(module)
    for graph in answers.graphs:
        for node in filter(_may_grow, graph):
            length, last = answers.length(node.inputs[0]), _largest(node.inputs[1], answers)
            if length is None or last is None or last >= length:
                where = " of function '%s'" % graph.name if isinstance(graph, Function) else ""
                raise PlanError(
                    "node '%s'%s (%s) may make its list longer, and XLA's lists keep the length that they are made "
                    "with: give the TensorArray its full size; or run the step in the session" % (
                        node.name, where, node.op)
                )  # fmt: skip


def _may_grow(node: Node) -> bool:
    return node.op == WRITE and bool(node.attrs.get(GROWS))


def _largest(value: Value, answers: Answers) -> int | None:
    """The largest value of an index: one that is known, or a counter in a loop that runs so many times at most."""
    number = answers.number(value)
    if number is not None:
        return int(number)
    node = behind(value)
    body = node.graph
    callers = answers.callers.get(body, [])
    if len(callers) != 1 or calls.kind(callers[0]) != LOOP or node not in body.arguments:
        return None
    counter = while_counts.counter(callers[0], body.arguments.index(node), answers)
    most = while_counts.at_most(callers[0], answers)
    return None if counter is None or most is None else counter[0] + counter[1] * (most - 1)
