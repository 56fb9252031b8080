"""Hoists reads of variables out of the branches of tf.cond, so each is read once, before the branch begins.

The gradient of a tf.cond is an If of its own, which recomputes values of the forward branch. A read recomputed there
would see what was written between the two:

    r:ReadVariableOp(Switch(v, p):1)     becomes     r/before:ReadVariableOp(v, ^p)   r:Identity(Switch(r/before, p):1)

A read that must follow a side effect in its branch stays there. So does a read of a reference variable: its consumer
sees the memory as it is when the consumer runs, see late_reads.py.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import controls, output_of, source_of
from npu_shim.session.clusters.branches import SWITCHES, Branches

GATHER = "ResourceGather"


def before_branches(graph_def: Any) -> Any:
    """Returns a GraphDef with its reads of variables hoisted out of branches; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow; it is not changed.
    """
    while True:  # a read leaves one tf.cond in each pass
        movable = _movable(graph_def)
        if not movable:
            return graph_def
        nodes = {node.name: node for node in graph_def.node}
        made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
        for node in graph_def.node:
            is_moved = node.name in movable
            made.node.extend(_moved(node, _switch(node, nodes), movable[node.name]) if is_moved else [node])
        graph_def = made


def _movable(graph_def):
    """Maps each read that can be hoisted to its control inputs outside the branch."""
    nodes, ops = {node.name: node for node in graph_def.node}, tf_internals.op_defs()
    reads = [node for node in graph_def.node if _switch(node, nodes)]
    if not reads:
        return {}
    view = Branches(graph_def)
    found = {n.name: _waits(n, _switch(n, nodes), view, ops) for n in reads if n.name in view.of}
    return {name: waits for name, waits in found.items() if waits is not None}


def _switch(node, nodes):
    """The tf.cond's Switch that passes a read its handle; None for other nodes."""
    if node.op not in ("ReadVariableOp", GATHER):
        return None
    source = nodes[source_of(node.input[0])]
    if source.op != "Switch" or nodes[source_of(source.input[1])].op == "LoopCond":
        return None
    return source


def _waits(node, switch, view, ops):
    """A read's control inputs once hoisted; None if it must follow a side effect in its branch."""
    branch = view.predicate(switch), output_of(node.input[0])[1]
    pending, seen, found = [source_of(text) for text in controls(node)], set(), {}
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        inside = view.nodes.get(name)
        if inside is None:
            return None
        if inside.op in SWITCHES and branch not in view.of[name]:
            pending.extend(map(source_of, inside.input))  # the branch begins here
        elif branch not in view.of[name]:
            found["^" + name] = None
        elif _has_effects(inside, ops):
            return None
        else:
            pending.extend(map(source_of, inside.input))
    found.update(dict.fromkeys(text for text in switch.input if text[0] == "^"))
    return [*found, "^" + source_of(switch.input[1])]


def _has_effects(node, ops):
    if node.op not in ops or any(argument.is_ref for argument in ops[node.op].input_arg):
        return True
    return ops[node.op].is_stateful and node.op not in ("ReadVariableOp", GATHER)


def _moved(node, switch, waits):
    """The nodes that replace a read."""
    scope, dtype = node.name + "/before", node.attr["dtype"].type
    read = tf.NodeDef(name=scope, op="ReadVariableOp", input=[switch.input[0], *dict.fromkeys(waits)])
    read.attr["dtype"].type = dtype
    side = tf.NodeDef(name=scope + "/side", op="Switch", input=[scope, switch.input[1]])
    side.attr["T"].type = dtype
    value = "%s:%d" % (side.name, output_of(node.input[0])[1])
    controls = [text for text in node.input if text[0] == "^" and text not in waits]
    if node.op != GATHER:
        taken = tf.NodeDef(name=node.name, op="Identity", input=[value, *controls])
        taken.attr["T"].type = dtype
        return [read, side, taken]
    axis = tf.NodeDef(name=scope + "/axis", op="Const", input=["^" + source_of(node.input[1])])
    axis.attr["dtype"].type = tf.int32.as_datatype_enum
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
    taken = tf.NodeDef(name=node.name, op="GatherV2", input=[value, node.input[1], axis.name, *controls])
    taken.attr["Tparams"].type, taken.attr["Tindices"].type = dtype, node.attr["Tindices"].type
    taken.attr["Taxis"].type = tf.int32.as_datatype_enum
    taken.attr["batch_dims"].i = node.attr["batch_dims"].i
    return [read, side, axis, taken]
