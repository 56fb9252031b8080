"""Makes both sides of a tf.cond push to a Stack that only one side pushes to, as a tf.cond's gradient in a loop needs.

TensorFlow's conversion for XLA cannot convert a push that may not run. The other side now pushes zeros. Each push has
one pop, so the zeros are popped where nothing reads them:

    push(Switch(s, p):1, x)                        push(s, Merge(Switch(zeros, p):0, x))
    y = pop(Switch(s, q):1)            becomes     y = Switch(pop(s), q):1
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import branches
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.shapes import static_shapes


class _Handle(NamedTuple):
    """A Stack, its handle outside of tf.cond, and (predicate, side) of the Switches behind that, outermost first."""

    stack: Node
    outside: Value
    sides: list[branches.Branch]


def on_both_sides(module: Module) -> None:
    """Moves pushes and pops out of tf.cond, in a module with v1 control flow.

    Raises:
        PlanError: the shape of a pushed value is unknown.
    """
    graph = module.graph
    inside = branches.branches(graph)
    pushes = [node for node in graph if node.op == "StackPushV2" and inside[node]]
    if not pushes:
        return
    stacks = {_handle(push).stack for push in pushes}
    shapes = static_shapes.infer(graphdef.write(module), [str(push.inputs[1]) for push in pushes])
    moved = {}
    for node in graph:
        if node.op == "StackPushV2" and inside[node]:
            _push(node, inside, shapes[str(node.inputs[1])])
        elif node.op == "StackPopV2" and _handle(node).stack in stacks:
            moved[node] = _pop(node, inside)
    for pop, outside in moved.items():
        pop.output(CONTROL).replace_by(outside.output(CONTROL))


def _handle(node: Node) -> _Handle:
    value, sides = node.inputs[0], []
    while value.node.op in ("Switch", "Identity"):
        if value.node.op == "Switch":
            sides.insert(0, (value.node.inputs[1], value.index))
        value = value.node.inputs[0]
    stack = value.node
    while stack.op in ("Enter", "Switch", "Identity"):
        stack = stack.inputs[0].node
    return _Handle(stack, value, sides)


def _push(push: Node, inside: Mapping[Node, branches.Inside], shape: tf.TensorShape) -> None:
    """Moves a push out of each tf.cond around it; it keeps its name and pushes a value for either side."""
    if not shape.is_fully_defined():
        raise PlanError(
            "node '%s' (StackPushV2) keeps a value of one side of a tf.cond for its gradient, and XLA must know its "
            "shape, which is %s" % (push.name, shape)
        )
    graph, dtype, value, handle = push.graph, push.attrs["T"], push.inputs[1], _handle(push).outside
    zeros = _zeros(push, shape, dtype, handle.node)

    def outer_last(branch: branches.Branch) -> tuple[int, str, int]:
        return -len(branches.along(branch[0], inside)), str(branch[0]), branch[1]

    inner_first = sorted(inside[push], key=outer_last)
    for number, (predicate, side) in enumerate(inner_first):
        scope = "%s/side%d/" % (push.name, number)
        # the zeros of an inner tf.cond enter the outer branch as the inner predicate does
        other = _into(graph, scope + "zeros", zeros, reversed(inner_first[number + 1 :]), dtype)
        switch = graph.add(scope + "switch", "Switch", [other, predicate], attrs={"T": dtype})
        taken = [switch.output(1 - side), value]
        value = graph.add(scope + "merge", "Merge", taken, attrs={"T": dtype, "N": 2}).value
    push.set_inputs([handle, value])
    push.set_controls([control for control in push.controls if not inside[control]])


def _pop(pop: Node, inside: Mapping[Node, branches.Inside]) -> Node:
    """Adds a pop outside of tf.cond and returns it; the old pop forwards its value."""
    _, handle, sides = _handle(pop)
    dtype, controls = pop.attrs["elem_type"], [control for control in pop.controls if not inside[control]]
    outside = pop.graph.add(pop.name + "/both", "StackPopV2", [handle], controls, {"elem_type": dtype})
    pop.forward(_into(pop.graph, pop.name + "/side", outside.value, sides, dtype), dtype)
    pop.set_controls([control for control in pop.controls if control not in controls])
    return outside


def _into(graph: Graph, name: str, value: Value, outer_first: Iterable[branches.Branch], dtype: int) -> Value:
    """Passes a value into nested branches; returns it there."""
    for number, (predicate, side) in enumerate(outer_first):
        switch = graph.add("%s%d" % (name, number), "Switch", [value, predicate], attrs={"T": dtype})
        value = switch.output(side)
    return value


def _zeros(push: Node, shape: tf.TensorShape, dtype: int, frame: Node) -> Value:
    """Adds a Fill of zeros; the node that its constants wait for places it in a loop."""
    name, int32 = push.name, tf.int32.as_datatype_enum
    contents = {
        "dims": tf.make_tensor_proto(shape.as_list(), tf.int32),
        "zero": tf.make_tensor_proto(tf.as_dtype(dtype).as_numpy_dtype(0), dtype),
    }
    protos = [tf.NodeDef(name="%s/%s" % (name, part), op="Const", input=["^" + frame.name]) for part in contents]
    for proto, tensor in zip(protos, contents.values()):
        proto.attr["value"].tensor.CopyFrom(tensor)
        proto.attr["dtype"].type = tensor.dtype
    fill = tf.NodeDef(name=name + "/zeros", op="Fill", input=[proto.name for proto in protos])
    fill.attr["T"].type, fill.attr["index_type"].type = dtype, int32
    graphdef.insert(push.graph, [*protos, fill], origin=push)
    return push.graph[fill.name].value
