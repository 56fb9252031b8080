"""Slices of tensors whose size depends on data: none has fewer rows than 0.

    x[2:] of one row      has no rows in a session; compiled by XLA, tf.shape(x[2:])[0] is -1

What takes such a tensor divides by -1, or reads memory that is not there. So the size that XLA keeps is set:

    y = StridedSlice(x, [2], ..)   z = Exp(y)     becomes     y = StridedSlice(x, [2], ..)
                                                              z = Exp(XlaSetDynamicDimensionSize(y, 0, max(size, 0)))
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.shapes.dynamic_shapes import SET_ROWS, SOURCES, TAKING, View

SLICE = "StridedSlice"
SCOPE, PART, ROWS = "/counted/", "part", "rows"


def never_negative(graph_def: Any) -> Any:
    """Returns a GraphDef whose slices of open sizes have at least 0 rows; the same object if it has no such slice.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
    """
    nodes = {node.name: node for node in graph_def.node}
    chosen = {node.name for node in graph_def.node if node.op == SLICE and _leaves_out_rows(node, nodes)}
    if not chosen or not any(node.op in SOURCES or node.op in TAKING for node in graph_def.node):
        return graph_def
    view = View(graph_def)
    shapes = {name: view.open_shape(name) for name in chosen}
    counted = {name: name + SCOPE + ROWS for name, shape in shapes.items() if shape is not None}
    if not counted:
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        copy = made.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [text if text[0] == "^" else counted.get(source_of(text), text) for text in node.input]
        if node.name in counted:
            made.node.extend(_counted(node, shapes[node.name]))
    return made


def _leaves_out_rows(node: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether a slice leaves out rows by their number, in an axis that it keeps: x[2:], x[:-1], x[n:]."""
    begin, end = (_constant(nodes[source_of(text)]) for text in node.input[1:3])
    shrunk, first, last = (node.attr[name].i for name in ("shrink_axis_mask", "begin_mask", "end_mask"))
    count = len(begin if begin is not None else end if end is not None else ())
    if not count:
        return True  # nothing is known of it
    for axis in (k for k in range(count) if not shrunk >> k & 1):
        if not first >> axis & 1 and (begin is None or begin[axis] > 0):
            return True
        if not last >> axis & 1 and end is not None and end[axis] < 0:
            return True
    return False


def _constant(node: Any) -> Any:
    return tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else None


def _counted(node: Any, shape: tf.TensorShape) -> list[Any]:
    """The nodes behind a slice of this shape, some of whose axes are open."""

    def build(rows: Any) -> None:
        rows = tf.identity(rows, PART)
        for axis, size in enumerate(shape.as_list()):
            if size is None:
                given = [rows, tf.constant(axis), tf.maximum(tf.shape(rows)[axis], 0)]
                rows = tf.get_default_graph().create_op(SET_ROWS, given, [rows.dtype]).outputs[0]
        tf.ensure_shape(rows, shape, name=ROWS)

    return subgraphs.nodes(node.name + SCOPE, [(node.name, tf.as_dtype(node.attr["T"].type))], build, PART)
