"""Makes what counts rows by their values ignore padding: tf.unique and tf.where of tensors of open size.

    y, i = unique(x)     becomes     y, i = unique(where(row < count, all rows of x, x[0] or a hole));  i = i[:count]
    y = where(x)         becomes     y = where(barrier(all rows of (x != 0) & (row < count)))

StableHLO has no tf.where of an open size, so an engine could not run a mask of a mask. The barrier is for TensorFlow's
compiler (2.15.1): it asks how many rows tf.where may give by evaluating what it is made of, and where that has a matrix
product of open size it reads memory that is not there, and ends the process. So a tf.where of known size that depends
on tensors of open size gets one too.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.legalize.facts import UNIQUE_HERE, Facts
from npu_shim.xla.passes.legalize.ops import uniques
from npu_shim.xla.passes.legalize.padding import HOLE
from npu_shim.xla.passes.memory.rematerialization.apply import BARRIER
from npu_shim.xla.passes.shapes.dynamic_shapes import ALL_ROWS, UNIQUE, WITH_COUNTS, View

WHERE = "Where"
OPS = frozenset([WHERE, *UNIQUE, *WITH_COUNTS])
SCOPE, MASK, COUNTED = "/open/", "mask", "/counted/"


def mask(module: Module, context: Any = None) -> None:
    """Has tf.unique and tf.where ignore padding rows, in a module with v1 control flow and feeds of full shapes."""
    counting = [node for node in module.graph if node.op in OPS]
    if counting:
        for insert_mask in _masks(counting, View(module.graph), Facts(module.graph)):
            insert_mask()


def _masks(counting: Sequence[Node], view: View, facts: Facts) -> list[Callable[[], None]]:
    """What has to be done for nodes, found while the view and the facts hold."""
    masks: list[Callable[[], None]] = []
    for node in counting:
        is_open = bool(view.open_inputs(node))
        shape = view.open_shape(node.inputs[0]) if is_open else None
        if node.op != WHERE and is_open and 0 not in facts.distinct(node):
            masks.append(functools.partial(_mask_unique, node))
        elif node.op == WHERE and is_open == (shape is not None) and view.depends_on_open(node.inputs[0]):
            masks.append(functools.partial(_mask_where, node, shape))
    return masks


def _all_rows(tensor: Any, axis: int, name: str | None = None) -> Any:
    given = [tensor, tf.constant(axis)]
    return tf.get_default_graph().create_op(ALL_ROWS, given, [tensor.dtype], name=name).outputs[0]


def _mask_where(node: Node, shape: tf.TensorShape | None) -> None:
    """Takes from a tf.where the padding of its input, which is of this shape; None for one of known size."""
    dtype = tf.as_dtype(node.attrs.get("T", tf.bool))

    def build(values: Any) -> None:
        values = tf.identity(values, "values")
        whole = values if dtype == tf.bool else tf.not_equal(values, tf.zeros([], dtype))
        if shape is not None:
            whole = _without_padding(whole, values, shape.as_list())
        types = tf.AttrValue(list=tf.AttrValue.ListValue(type=[tf.bool.as_datatype_enum]))
        tf.get_default_graph().create_op(BARRIER, [whole], [tf.bool], attrs={"T": types}, name=MASK)

    _insert(node, dtype, build)
    node.set_input(0, node.graph[node.name + SCOPE + MASK].value)
    node.attrs["T"] = DType(tf.bool.as_datatype_enum)


def _without_padding(whole: Any, values: Any, sizes: Sequence[int | None]) -> Any:
    """A mask of values of these sizes, None where open, as one of known size that is False where no values are."""
    for axis, size in enumerate(sizes):
        if size is None:
            whole = _all_rows(whole, axis)
            there = tf.range(tf.shape(whole)[axis]) < tf.shape(values)[axis]
            whole = tf.logical_and(whole, tf.reshape(there, [-1 if k == axis else 1 for k in range(len(sizes))]))
    return whole


def _without_counts(node: Node) -> Node:
    """Replaces a tf.unique_with_counts by a tf.unique, which it returns, and sums of its places."""
    dtype, index = (tf.as_dtype(node.attrs[name]) for name in ("T", "out_idx"))

    def build(values: Any) -> None:
        uniques, places = tf.unique(values, index, "unique")
        tf.math.unsorted_segment_sum(tf.raw_ops.OnesLike(x=places), places, tf.size(uniques), "counts")

    scope = node.name + COUNTED
    nodes = subgraphs.nodes(scope, [(str(node.inputs[0]), dtype)], build, "unique")
    graphdef.insert(node.graph, nodes, before=node, origin=node)
    results = [scope + name for name in ("unique", "unique:1", "counts")]
    waits = ["^" + control.name for control in node.controls]
    last = tf.NodeDef(name=node.name, op="IdentityN", input=[*results, *waits])
    last.attr["T"].list.type.extend(kind.as_datatype_enum for kind in (dtype, index, index))
    graphdef.become(node, last)
    return node.graph[scope + "unique"]


def _mask_unique(node: Node) -> None:
    """Makes padding rows of a tf.unique copies of the first row, or holes where there is none."""
    node = node if node.op in UNIQUE else _without_counts(node)
    dtype, index = (tf.as_dtype(node.attrs[name]) for name in ("T", "out_idx"))

    def build(values: Any) -> None:
        values = tf.identity(values, "values")
        count = tf.identity(tf.shape(values)[0], uniques.COUNT)
        rows = _all_rows(values, 0, "rows")
        first = tf.where_v2(count > 0, rows[0], tf.cast(HOLE, dtype)) if dtype in (tf.int32, tf.int64) else rows[0]
        distinct, places = tf.unique(tf.where_v2(tf.range(tf.size(rows)) < count, rows, first), index, uniques.OPEN)
        tf.identity_n([distinct, places[:count]], "found")

    _insert(node, dtype, build)
    scope_found, waits = node.name + SCOPE + "found", ["^" + control.name for control in node.controls]
    last = tf.NodeDef(name=node.name, op="IdentityN", input=[scope_found, scope_found + ":1", *waits])
    last.attr[UNIQUE_HERE].b = True
    last.attr["T"].list.type.extend([dtype.as_datatype_enum, index.as_datatype_enum])
    graphdef.become(node, last)


def _insert(node: Node, dtype: Any, build: Callable[[Any], None]) -> None:
    """Puts what `build` makes of a node's input before it."""
    nodes = subgraphs.nodes(node.name + SCOPE, [(str(node.inputs[0]), dtype)], build, "values")
    graphdef.insert(node.graph, nodes, before=node, origin=node)
