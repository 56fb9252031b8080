"""Writes a single row into a TensorArray as its element.

XLA takes a scatter to the constant indices 0, 1, .. for one of all elements, and adds the values to the whole array. It
does not ask how many elements there are, so that a single row is added to each of them (TensorFlow 2.15.1). Gradients
of `array.gather([0])` are such scatters:

    TensorArrayScatterV3(array, [0], x, flow)    becomes    TensorArrayWriteV3(array, Squeeze([0]), Squeeze(x), flow)

A scatter of two rows or more to a longer array is an error of XLA, since the shapes differ.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import controls, source_of
from npu_shim.xla.passes.shapes import static_shapes

OP = "TensorArrayScatterV3"
ROUTES = ("Identity", "Enter", "Switch")


def as_writes(graph_def: Any) -> Any:
    """Returns a GraphDef without scatters of a single row to TensorArrays; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
    """
    chosen = _of_one_row(graph_def)
    if not chosen:
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        made.node.extend(_write(node) if node.name in chosen else [node])
    return made


def _of_one_row(graph_def):
    """Names of the scatters whose indices are one."""
    nodes = {node.name: node for node in graph_def.node}
    counts = {node.name: _count(node.input[1], nodes) for node in graph_def.node if node.op == OP}
    pending = {name: nodes[name].input[1] for name, count in counts.items() if count is None}
    shapes = static_shapes.infer(graph_def, list(pending.values())) if pending else {}
    counts.update((name, shapes[text].num_elements()) for name, text in pending.items())
    return {name for name, count in counts.items() if count == 1}


def _count(text, nodes):
    """How many numbers a constant holds; None for what is no constant."""
    node = nodes[source_of(text)]
    while node.op in ROUTES:
        node = nodes[source_of(node.input[0])]
    return tf.make_ndarray(node.attr["value"].tensor).size if node.op == "Const" else None


def _write(node):
    """The nodes that replace a scatter."""
    array, indices, rows, flow = node.input[:4]
    index, row = (
        _first("%s/%s" % (node.name, name), text, dtype)
        for name, text, dtype in (("index", indices, tf.int32.as_datatype_enum), ("row", rows, node.attr["T"].type))
    )
    made = tf.NodeDef(name=node.name, op="TensorArrayWriteV3", input=[array, index.name, row.name, flow])
    made.input.extend(controls(node))
    made.attr["T"].type = node.attr["T"].type
    return [index, row, made]


def _first(name, text, dtype):
    """A node with the only row of a tensor."""
    node = tf.NodeDef(name=name, op="Squeeze", input=[text])
    node.attr["T"].type = dtype
    node.attr["squeeze_dims"].list.i.append(0)
    return node
