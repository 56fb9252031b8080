"""Makes both sides of a tf.cond push to a Stack that only one side pushes to, as a tf.cond's gradient in a loop needs.

TensorFlow's conversion for XLA cannot convert a push that may not run. The other side now pushes zeros. Each push has
one pop, so the zeros are popped where nothing reads them:

    push(Switch(s, p):1, x)                        push(s, Merge(Switch(zeros, p):0, x))
    y = pop(Switch(s, q):1)            becomes     y = Switch(pop(s), q):1
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import output_of, source_of
from npu_shim.session.clusters.branches import Branches
from npu_shim.xla.passes.shapes import static_shapes


def on_both_sides(graph_def: Any) -> Any:
    """Returns a GraphDef whose pushes and pops are outside of tf.cond; the same object if they already are.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow; it is not changed.

    Raises:
        PlanError: the shape of a pushed value is unknown.
    """
    view = Branches(graph_def)
    pushes = [node for node in graph_def.node if node.op == "StackPushV2" and view.of[node.name]]
    if not pushes:
        return graph_def
    stacks = {_handle(node, view)[0] for node in pushes}
    shapes = static_shapes.infer(graph_def, [node.input[1] for node in pushes])
    copy, moved = tf.GraphDef(), {}
    copy.CopyFrom(graph_def)
    for node in list(copy.node):
        if node.op == "StackPushV2" and view.of[node.name]:
            _push(copy, node, view, shapes[node.input[1]])
        elif node.op == "StackPopV2" and _handle(node, view)[0] in stacks:
            moved["^" + node.name] = "^" + _pop(copy, node, view)
    for node in copy.node:
        for number, text in enumerate(node.input):
            node.input[number] = moved.get(text, text)
    return copy


def _handle(node, view):
    """(Stack's node, its handle outside of tf.cond, [(predicate, side)] of the Switches, outermost first)."""
    text, sides = node.input[0], []
    while view.nodes[source_of(text)].op in ("Switch", "Identity"):
        source = view.nodes[source_of(text)]
        if source.op == "Switch":
            sides.insert(0, (source.input[1], output_of(text)[1]))
        text = source.input[0]
    stack = view.nodes[source_of(text)]
    while stack.op in ("Enter", "Switch", "Identity"):
        stack = view.nodes[source_of(stack.input[0])]
    return stack.name, text, sides


def _push(graph_def, push, view, shape):
    """Moves a push out of each tf.cond around it; it keeps its name and pushes a value for either side."""
    if not shape.is_fully_defined():
        raise PlanError(
            "node '%s' (StackPushV2) keeps a value of one side of a tf.cond for its gradient, and XLA must know its "
            "shape, which is %s" % (push.name, shape)
        )
    dtype, value, handle = push.attr["T"].type, push.input[1], _handle(push, view)[1]
    zeros = _zeros(graph_def, push.name, shape, dtype, "^" + source_of(handle))
    inner_first = sorted(view.of[push.name], key=lambda branch: (-len(view.along(branch[0])), branch))
    for number, (predicate, side) in enumerate(inner_first):
        scope = "%s/side%d/" % (push.name, number)
        # the zeros of an inner tf.cond enter the outer branch as the inner predicate does
        data = _into(graph_def, scope + "zeros", zeros, inner_first[number + 1 :], dtype)
        _node(graph_def, scope + "switch", "Switch", [data, predicate], dtype)
        _node(graph_def, scope + "merge", "Merge", ["%sswitch:%d" % (scope, 1 - side), value], dtype)
        graph_def.node[-1].attr["N"].i = 2
        value = scope + "merge"
    controls = [text for text in push.input[2:] if not view.along(text)]
    del push.input[:]
    push.input.extend([handle, value, *controls])


def _pop(graph_def, pop, view):
    """Adds a pop outside of tf.cond and returns its name; the old pop forwards its value."""
    _, handle, sides = _handle(pop, view)
    dtype, controls = pop.attr["elem_type"].type, [text for text in pop.input[1:] if not view.along(text)]
    outside = graph_def.node.add(name=pop.name + "/both", op="StackPopV2", input=[handle, *controls])
    outside.attr["elem_type"].type = dtype
    text = _into(graph_def, pop.name + "/side", outside.name, sides[::-1], dtype)
    waits = [text for text in pop.input[1:] if text not in controls]
    del pop.input[:]
    pop.op = "Identity"
    pop.input.extend([text, *waits])
    pop.attr.clear()
    pop.attr["T"].type = dtype
    return outside.name


def _into(graph_def, name, text, inner_first, dtype):
    """Passes a tensor into nested branches, listed innermost first; returns its name there."""
    for number, (predicate, side) in enumerate(reversed(inner_first)):
        _node(graph_def, "%s%d" % (name, number), "Switch", [text, predicate], dtype)
        text = "%s%d:%d" % (name, number, side)
    return text


def _zeros(graph_def, name, shape, dtype, frame):
    """Adds a Fill of zeros and returns its name; the control input `frame` places it in a loop."""
    dims = tf.make_tensor_proto(shape.as_list(), tf.int32)
    zero = tf.make_tensor_proto(tf.as_dtype(dtype).as_numpy_dtype(0), dtype)
    for part, value in (("dims", dims), ("zero", zero)):
        node = graph_def.node.add(name="%s/%s" % (name, part), op="Const", input=[frame])
        node.attr["value"].tensor.CopyFrom(value)
        node.attr["dtype"].type = value.dtype
    _node(graph_def, name + "/zeros", "Fill", [name + "/dims", name + "/zero"], dtype)
    graph_def.node[-1].attr["index_type"].type = tf.int32.as_datatype_enum
    return name + "/zeros"


def _node(graph_def, name, op, inputs, dtype):
    graph_def.node.add(name=name, op=op, input=inputs).attr["T"].type = dtype
