"""Slices of tensors whose size depends on data: none has fewer rows than 0.

    x[2:] of one row      has no rows in a session; compiled by XLA, tf.shape(x[2:])[0] is -1

What takes such a tensor divides by -1, or reads memory that is not there. So the size that XLA keeps is set:

    y = StridedSlice(x, [2], ..)   z = Exp(y)     becomes     y = StridedSlice(x, [2], ..)
                                                              z = Exp(XlaSetDynamicDimensionSize(y, 0, max(size, 0)))
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.shapes.dynamic_shapes import SET_ROWS, SOURCES, TAKING, View

SLICE = "StridedSlice"
SCOPE, PART, ROWS = "/counted/", "part", "rows"


def never_negative(module: Module, context: Any = None) -> None:
    """Gives slices of open sizes at least 0 rows, in a module with v1 control flow and feeds of full shapes."""
    graph = module.graph
    chosen = [node for node in graph if node.op == SLICE and _leaves_out_rows(node)]
    if not chosen or module.ops().isdisjoint([*SOURCES, *TAKING]):
        return
    view = View(graphdef.write(module))
    for node, shape in [(node, view.open_shape(node.name)) for node in chosen]:
        if shape is not None:
            users = list(node.value.users)
            graphdef.insert(graph, _counted(node, shape), after=node, origin=node)
            node.value.replace_by(graph[node.name + SCOPE + ROWS].value, users)


def _leaves_out_rows(node: Node) -> bool:
    """Whether a slice leaves out rows by their number, in an axis that it keeps: x[2:], x[:-1], x[n:]."""
    begin, end = (_constant(value) for value in node.inputs[1:3])
    shrunk, first, last = (node.attrs.get(name, 0) for name in ("shrink_axis_mask", "begin_mask", "end_mask"))
    count = len(begin if begin is not None else end if end is not None else ())
    if not count:
        return True  # nothing is known of it
    for axis in (k for k in range(count) if not shrunk >> k & 1):
        if not first >> axis & 1 and (begin is None or begin[axis] > 0):
            return True
        if not last >> axis & 1 and end is not None and end[axis] < 0:
            return True
    return False


def _constant(value: Value) -> Any:
    return value.node.attrs["value"].numbers() if value.node.op == "Const" else None


def _counted(node: Node, shape: tf.TensorShape) -> list[Any]:
    """The nodes behind a slice of this shape, some of whose axes are open."""

    def build(rows: Any) -> None:
        rows = tf.identity(rows, PART)
        for axis, size in enumerate(shape.as_list()):
            if size is None:
                given = [rows, tf.constant(axis), tf.maximum(tf.shape(rows)[axis], 0)]
                rows = tf.get_default_graph().create_op(SET_ROWS, given, [rows.dtype]).outputs[0]
        tf.ensure_shape(rows, shape, name=ROWS)

    return subgraphs.nodes(node.name + SCOPE, [(node.name, tf.as_dtype(node.attrs["T"]))], build, PART)
