"""Rewrites an assignment to a slice of a variable as a select between the new values and the old.

XLA's CPU compiler (TensorFlow 2.15.1) writes a slice in place while it computes the new values, and reads back what
it wrote:  v[1:3].assign(f(v)[:2])  gave f of the new v[1] in v[2].

    ResourceStridedSliceAssign(v, [1], [3], y)     becomes     v <- where(in the slice, y scattered to the slice, v)
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla import written_out

OP = "ResourceStridedSliceAssign"
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def as_choices(graph_def: Any) -> Any:
    """Returns a GraphDef without assignments to slices; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef without reference variables; it is not changed.
    """
    chosen = [node for node in graph_def.node if node.op == OP]
    if not chosen:
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    made.node.extend(node for node in graph_def.node if node.op != OP)
    for node in chosen:
        made.node.extend(_choice(node))
    return made


def _choice(node: Any) -> list[Any]:
    """The nodes that replace an assignment to a slice."""
    inputs, controls = arguments.data(node), arguments.controls(node)
    dtype, index = tf.as_dtype(node.attr["T"].type), tf.as_dtype(node.attr["Index"].type)
    masks = {name: node.attr[name].i for name in MASKS}

    def build(handle: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name="old")
        where = dict(begin=begin, end=end, strides=strides, **masks)
        part = tf.raw_ops.StridedSlice(input=old, **where, name="part")
        value = tf.broadcast_to(value, tf.shape(part, out_type=index), "value")
        back = lambda dy: tf.raw_ops.StridedSliceGrad(shape=tf.shape(old, out_type=index), dy=dy, **where)  # noqa: E731
        inside = tf.cast(back(tf.ones_like(part, tf.int32)), tf.bool)
        tf.where_v2(inside, back(value), old, name="new")

    scope = node.name + "/choice/"
    made = written_out.nodes(scope, list(zip(inputs, (tf.resource, index, index, index, dtype))), build, "old")
    for each in made:
        if each.name == scope + "old":
            each.input.extend(dict.fromkeys(["^" + source_of(inputs[4]), *controls]))
    write = tf.NodeDef(name=node.name, op="AssignVariableOp", input=[inputs[0], scope + "new", *controls])
    write.attr["dtype"].type = dtype.as_datatype_enum
    return [*made, write]
