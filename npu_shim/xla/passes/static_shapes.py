"""Shapes of tensors as TensorFlow infers them, inside of loops of version 1 too.

It infers them on a copy of the graph without back edges: a loop variable keeps its initial shape; a pop has the shape
of the push; all elements of a TensorArray have one shape.
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import data, source_of
from npu_shim.xla.passes import pruning

FORWARDS = ("Identity", "Enter", "Switch", "TensorArrayGradV3")  # forward their first input, or a tensor of its shape
# ops of loops; a graph without them has the shapes that TensorFlow infers of it
OF_LOOPS = frozenset([
    "Enter", "Exit", "NextIteration", "StackPushV2", "StackPopV2", "TensorArrayReadV3", "TensorArrayGatherV3",
    "TensorArraySizeV3",
])  # fmt: skip
ZERO = "npu_shim/zero"


def loopless(graph_def: Any) -> Any:
    """Returns a `tf_internals.read_only_graph` with a GraphDef's tensors and shapes, without back edges of loops."""
    if any(node.op in OF_LOOPS for node in graph_def.node):
        graph_def = _without_back_edges(graph_def, {node.name: node for node in graph_def.node})
    return tf_internals.read_only_graph(graph_def)


def _without_back_edges(graph_def, nodes):
    """A GraphDef of the same names without loops, for shapes only; pops and reads forward what was written."""
    pushed = {_stack(n, nodes): n.input[1] for n in graph_def.node if n.op == "StackPushV2"}
    elements = _elements(graph_def, nodes)
    cut = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    cut.node.extend([pruning.make_constant(ZERO, np.int32(0))])
    for node in graph_def.node:
        if node.op != "NextIteration":
            cut.node.extend(_loopless(node, nodes, pushed, elements))
    return cut


def _loopless(node, nodes, pushed, elements):
    if node.op in ("Enter", "Exit") or (node.op == "Merge" and nodes[source_of(node.input[1])].op == "NextIteration"):
        return [_identity(node.name, node.input[0], node.attr["T"].type)]
    if node.op == "StackPushV2":
        return [_identity(node.name, node.input[1], node.attr["T"].type)]
    if node.op == "StackPopV2" and _stack(node, nodes) in pushed:
        return [_identity(node.name, pushed[_stack(node, nodes)], node.attr["elem_type"].type)]
    if node.op in ("TensorArrayReadV3", "TensorArrayGatherV3"):
        array, is_gradient = origin(node.input[0], nodes)
        element = elements.get(array, {})
        written = element.get("write") if is_gradient or node.op == "TensorArrayGatherV3" else None
        if element.get("scatter") or written:
            return _element_of(node, element.get("scatter"), written)
    if node.op == "TensorArraySizeV3":
        array = nodes[origin(node.input[0], nodes)[0]]
        if not array.attr["dynamic_size"].b:  # of one that grows, the size is not that at which it starts
            return [_identity(node.name, array.input[0], tf.int32.as_datatype_enum)]
    copy = tf.NodeDef()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(data(node))
    return [copy]


def _elements(graph_def, nodes):
    """Maps each TensorArray to what the forward pass writes, {"scatter": stacked elements, "write": one element}."""
    elements = {}
    for node in graph_def.node:
        if node.op in ("TensorArrayScatterV3", "TensorArrayWriteV3"):
            array, is_gradient = origin(node.input[0], nodes)
            if not is_gradient:
                kind = "scatter" if node.op == "TensorArrayScatterV3" else "write"
                elements.setdefault(array, {})[kind] = node.input[2]
    return elements


def _element_of(node, scattered, written):
    """A node with the shape of an element, or (TensorArrayGatherV3) of a stack of them."""
    dtype, gathers = node.attr["dtype"].type, node.op == "TensorArrayGatherV3"
    if not gathers and scattered is None:
        return [_identity(node.name, written, dtype)]
    if scattered is not None:
        return [_gather(node.name, scattered, node.input[1] if gathers else ZERO, dtype)]
    stacked = tf.NodeDef(name=node.name + "/stacked", op="ExpandDims", input=[written, ZERO])
    stacked.attr["T"].type = dtype
    return [stacked, _gather(node.name, stacked.name, node.input[1], dtype)]


def _gather(name, values, indices, dtype):
    node = tf.NodeDef(name=name, op="GatherV2", input=[values, indices, ZERO])
    node.attr["Tparams"].type = dtype
    node.attr["Tindices"].type = node.attr["Taxis"].type = tf.int32.as_datatype_enum
    return node


def origin(text: str, nodes: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns (name of the node that creates a handle, whether it is a gradient's handle): tensor, nodes by name."""
    is_gradient = False
    node = nodes[source_of(text)]
    while node.op in FORWARDS or node.op == "Merge":
        is_gradient = is_gradient or node.op == "TensorArrayGradV3"
        node = nodes[source_of(node.input[0])]
    return node.name, is_gradient


def _stack(node, nodes):
    return origin(node.input[0], nodes)[0]


def _identity(name, text, dtype):
    node = tf.NodeDef(name=name, op="Identity", input=[text])
    node.attr["T"].type = dtype
    return node
