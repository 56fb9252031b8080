"""Makes what counts rows by their values ignore padding: tf.unique and tf.where of tensors of open size.

    y, i = unique(x)     becomes     y, i = unique(where(row < count, all rows of x, x[0]));  i = i[:count]
    y = where(x)         becomes     y = where(all rows of (x != 0) & (row < count))

StableHLO has no tf.where of an open size, so an engine could not run a mask of a mask.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.legalize.facts import UNIQUE_HERE, Facts
from npu_shim.xla.passes.shapes.dynamic_shapes import ALL_ROWS, UNIQUE, View

WHERE = "Where"
SCOPE, MASK = "/open/", "mask"


def masked(graph_def: Any) -> Any:
    """Returns a GraphDef whose tf.unique and tf.where ignore padding rows; the same object if it has neither.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
    """
    if not any(node.op in UNIQUE or node.op == WHERE for node in graph_def.node):
        return graph_def
    view, facts = View(graph_def), Facts(graph_def)
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        shape = view.open_shape(node.input[0]) if node.op == WHERE else None
        if shape is not None:
            made.node.extend(_where(node, shape))
        elif node.op in UNIQUE and 0 not in facts.distinct(node) and view.open_inputs(node):
            made.node.extend(_unique(node))
        else:
            made.node.extend([node])
    return made


def _all_rows(tensor: Any, axis: int, name: str | None = None) -> Any:
    given = [tensor, tf.constant(axis)]
    return tf.get_default_graph().create_op(ALL_ROWS, given, [tensor.dtype], name=name).outputs[0]


def _where(node: Any, shape: tf.TensorShape) -> list[Any]:
    """The nodes that replace a tf.where of an input of this shape: what is not there becomes False."""
    dtype = tf.as_dtype(node.attr["T"].type) if "T" in node.attr else tf.bool
    axes = [axis for axis, size in enumerate(shape.as_list()) if size is None]

    def build(values: Any) -> None:
        values = tf.identity(values, "values")
        whole = values if dtype == tf.bool else tf.not_equal(values, tf.zeros([], dtype))
        for axis in axes:
            whole = _all_rows(whole, axis)
            there = tf.range(tf.shape(whole)[axis]) < tf.shape(values)[axis]
            whole = tf.logical_and(whole, tf.reshape(there, [-1 if k == axis else 1 for k in range(shape.rank)]))
        tf.identity(whole, MASK)

    scope = node.name + SCOPE
    last = tf.NodeDef()
    last.CopyFrom(node)
    last.input[0] = scope + MASK
    last.attr["T"].type = tf.bool.as_datatype_enum
    return [*subgraphs.nodes(scope, [(node.input[0], dtype)], build, "values"), last]


def _unique(node: Any) -> list[Any]:
    """The nodes that replace a tf.unique: padding rows become copies of the first row."""
    dtype, index = tf.as_dtype(node.attr["T"].type), tf.as_dtype(node.attr["out_idx"].type)

    def build(values: Any) -> None:
        values = tf.identity(values, "values")
        count = tf.shape(values)[0]
        rows = _all_rows(values, 0, "rows")
        found, places = tf.unique(tf.where_v2(tf.range(tf.size(rows)) < count, rows, rows[0]), index)
        tf.identity_n([found, places[:count]], "found")

    scope = node.name + SCOPE
    made = subgraphs.nodes(scope, [(node.input[0], dtype)], build, "values")
    last = tf.NodeDef(name=node.name, op="IdentityN", input=[scope + "found", scope + "found:1"])
    last.input.extend(text for text in node.input if text[0] == "^")
    last.attr[UNIQUE_HERE].b = True
    last.attr["T"].list.type.extend([dtype.as_datatype_enum, index.as_datatype_enum])
    return [*made, last]
