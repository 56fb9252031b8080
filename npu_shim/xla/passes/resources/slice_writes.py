"""Rewrites an assignment to a slice of a variable as a select between the new values and the old.

XLA's CPU compiler (TensorFlow 2.15.1) writes a slice in place while it computes the new values, and reads back what
it wrote:  v[1:3].assign(f(v)[:2])  gave f of the new v[1] in v[2].

    ResourceStridedSliceAssign(v, [1], [3], y)     becomes     v <- where(in the slice, y scattered to the slice, v)
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import subgraphs

OP = "ResourceStridedSliceAssign"
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def lower(module: Module, context: Any = None) -> None:
    """Replaces the assignments to slices of a module without reference variables."""
    for node in module.graph:
        if node.op == OP:
            _replace(node)


def _replace(node: Node) -> None:
    dtype, index = tf.as_dtype(node.attrs["T"]), tf.as_dtype(node.attrs["Index"])
    masks = {name: node.attrs.get(name, 0) for name in MASKS}

    def build(handle: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        old = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name="old")
        where = dict(begin=begin, end=end, strides=strides, **masks)
        part = tf.raw_ops.StridedSlice(input=old, **where, name="part")
        value = tf.broadcast_to(value, tf.shape(part, out_type=index), "value")
        back = lambda dy: tf.raw_ops.StridedSliceGrad(shape=tf.shape(old, out_type=index), dy=dy, **where)  # noqa: E731
        inside = tf.cast(back(tf.ones_like(part, tf.int32)), tf.bool)
        tf.where_v2(inside, back(value), old, name="new")

    graph, scope = node.graph, node.name + "/choice/"
    handle, _, _, _, value = node.inputs
    taken = list(zip(map(str, node.inputs), (tf.resource, index, index, index, dtype)))
    graphdef.insert(graph, subgraphs.nodes(scope, taken, build, "old"), before=node, origin=node)
    graph[scope + "old"].set_controls([value.node, *node.controls])
    write = tf.NodeDef(name=node.name, op="AssignVariableOp", input=[str(handle), scope + "new"])
    write.input.extend("^" + control.name for control in node.controls)
    write.attr["dtype"].type = dtype.as_datatype_enum
    graphdef.become(node, write)
