"""Refuses lists of version 2's TensorArrays that may grow.

XLA's lists keep the length that they are made with, and what is written beyond it overwrites the last item:

    tf.TensorArray(tf.float32, 2, dynamic_size=True).write(3, x)     XLA writes x to item 1 (TensorFlow 2.15.1)

A write is sound where its index is known, or counts the iterations of a loop, and stays below the length. Where more
than one comparison with a known number ends that loop, floats tell if it has run longer (overruns.py). For XLA the
TensorListLength of a list that is appended to is the most that it may hold; nothing of TensorFlow's own asks for that.
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.control_flow import overruns
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.shapes import while_counts
from npu_shim.xla.passes.shapes.list_sizes import LENGTH, RESIZED, Answers

WRITE, GROWS = "TensorListSetItem", "resize_if_index_out_of_bounds"
OPS = frozenset([WRITE, LENGTH])


def require_fixed(module: Module, context: Any = None) -> None:
    """Checks that no list grows, as far as the conditions of loops tell.

    Args:
        module: of functional control flow, with Placeholders of full shapes.
        context: not used.

    Raises:
        PlanError: one may; the error names the node that writes to it.
    """
    if not any(map(_is_asked, (node for graph in module.graphs_with(OPS.__contains__) for node in graph))):
        return
    answers = Answers(module)
    for graph in answers.graphs:
        for node in filter(_is_asked, graph):
            if node.op == LENGTH:
                _require_not_appended_to(node, answers)
                continue
            length, (last, is_sure) = answers.length(node.inputs[0]), _largest(node.inputs[1], answers)
            if length is None or last is None or last >= length:
                where = " of function '%s'" % graph.name if isinstance(graph, Function) else ""
                raise PlanError(
                    "node '%s'%s (%s) may make its list longer, and XLA's lists keep the length that they are made "
                    "with: give the TensorArray its full size; or %s" % (node.name, where, node.op, IN_SESSION)
                )  # fmt: skip
            if not is_sure:
                overruns.spoil(node.inputs[1], length, [node])


def _is_asked(node: Node) -> bool:
    return node.op == LENGTH or (node.op == WRITE and bool(node.attrs.get(GROWS)))


def _require_not_appended_to(node: Node, answers: Answers) -> None:
    for value in reached(node.inputs[:1], lambda value: answers.same_lists(value) or ()):
        if value.node.op in (*RESIZED, "EmptyTensorList"):
            text = "node '%s' (%s) asks for the length of a list that is appended to, which XLA does not know; %s"
            raise PlanError(text % (node.name, node.op, IN_SESSION))


def _largest(value: Value, answers: Answers) -> tuple[int | None, bool]:
    """(The largest value of an index, whether that is certain).

    It is one that is known, or a counter in a loop that runs so many times at most; None for others.
    """
    number = answers.number(value)
    if number is not None:
        return int(number), True
    node = behind(value).node
    callers = answers.callers.get(node.graph, [])
    if len(callers) != 1 or calls.kind(callers[0]) != LOOP or node not in node.graph.arguments:
        return None, True
    counter = while_counts.counter(callers[0], node.graph.arguments.index(node), answers)
    most = while_counts.at_most(callers[0], answers)
    if counter is None or most is None:
        return None, True
    return counter[0] + counter[1] * (most - 1), while_counts.is_exact(callers[0], answers)
