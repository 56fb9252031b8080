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

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.shapes import static_shapes

OP = "TensorArrayScatterV3"
ROUTES = ("Identity", "Enter", "Switch")


def lower(module: Module, context: Any = None) -> None:
    """Replaces scatters of a single row to TensorArrays, in a module with v1 control flow and feeds of full shapes."""
    for node in _of_one_row(module):
        _replace(node)


def _of_one_row(module: Module) -> list[Node]:
    """The scatters whose indices are one."""
    counts = {node: _count(node.inputs[1].node) for node in module.graph if node.op == OP}
    pending = {node: str(node.inputs[1]) for node, count in counts.items() if count is None}
    shapes = static_shapes.infer(graphdef.write(module), list(pending.values())) if pending else {}
    counts.update((node, shapes[text].num_elements()) for node, text in pending.items())
    return [node for node, count in counts.items() if count == 1]


def _count(node: Node) -> int | None:
    """How many numbers a constant holds, behind what passes it on; None for what is no constant."""
    while node.op in ROUTES:
        node = node.inputs[0].node
    return node.attrs["value"].size if node.op == "Const" else None


def _replace(node: Node) -> None:
    array, indices, rows, flow = node.inputs
    index, row = node.name + "/index", node.name + "/row"
    parts = [_first(index, indices, tf.int32.as_datatype_enum), _first(row, rows, node.attrs["T"])]
    graphdef.insert(node.graph, parts, before=node, origin=node)
    write = tf.NodeDef(name=node.name, op="TensorArrayWriteV3", input=[str(array), index, row, str(flow)])
    write.input.extend("^" + control.name for control in node.controls)
    write.attr["T"].type = node.attrs["T"]
    graphdef.become(node, write)


def _first(name: str, value: Value, dtype: int) -> Any:
    """A NodeDef of the only row of a tensor."""
    node = tf.NodeDef(name=name, op="Squeeze", input=[str(value)])
    node.attr["T"].type = dtype
    node.attr["squeeze_dims"].list.i.append(0)
    return node
