"""Hoists reads of variables out of the branches of tf.cond, so each is read once, before the branch begins.

The gradient of a tf.cond is an If of its own, which recomputes values of the forward branch. A read recomputed there
would see what was written between the two:

    r:ReadVariableOp(Switch(v, p):1)     becomes     r/before:ReadVariableOp(v, ^p)   r:Identity(Switch(r/before, p):1)

A read that must follow a side effect in its branch stays there. So does a read of a reference variable: its consumer
sees the memory as it is when the consumer runs, see late_reads.py.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import branches
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Module

GATHER = "ResourceGather"
READS = ("ReadVariableOp", GATHER)


def hoist(module: Module, context: Any = None) -> None:
    """Hoists reads of variables out of branches, in a module with v1 control flow."""
    while _leave_a_branch(module.graph):
        pass


def _leave_a_branch(graph: Graph) -> bool:
    """Hoists reads out of one tf.cond each; returns whether there were any."""
    reads = [(node, switch) for node in graph if node.op in READS for switch in _switch(node)]
    inside = branches.branches(graph) if reads else {}
    hoisted = [(node, switch, _waits(node, switch, inside)) for node, switch in reads if node in inside]
    movable = [(node, switch, waits) for node, switch, waits in hoisted if waits is not None]
    for node, switch, waits in movable:
        _move(node, switch, ["^" + wait.name for wait in waits])
    return bool(movable)


def _switch(read: Node) -> list[Node]:
    """The tf.cond's Switch that passes a read its handle, if there is one."""
    source = read.inputs[0].node
    return [source] if source.op == "Switch" and source.inputs[1].node.op != "LoopCond" else []


def _waits(read: Node, switch: Node, inside: Mapping[Node, branches.Inside]) -> list[Node] | None:
    """What a read waits for once hoisted; None if it must follow a side effect in its branch."""
    branch = branches.decides(switch), read.inputs[0].index
    pending, seen, awaited = list(read.controls), set(), []
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in inside:
            return None
        is_inside = branch in inside[node]
        if is_inside and _has_effects(node):
            return None
        if is_inside or node.op in branches.SWITCHES:  # the branch begins at such a Switch
            pending.extend(node.sources())
        else:
            awaited.append(node)
    return list(dict.fromkeys([*awaited, *switch.controls, switch.inputs[1].node]))


def _has_effects(node: Node) -> bool:
    definition = registered(node.op)
    if definition is None or any(argument.is_ref for argument in definition.inputs):
        return True
    return definition.is_stateful and node.op not in READS


def _move(node: Node, switch: Node, waits: list[str]) -> None:
    """Reads before a Switch, and passes the value through it."""
    scope, dtype, port = node.name + "/before", node.attrs["dtype"], node.inputs[0].index
    read = tf.NodeDef(name=scope, op="ReadVariableOp", input=[str(switch.inputs[0]), *waits])
    read.attr["dtype"].type = dtype
    side = tf.NodeDef(name=scope + "/side", op="Switch", input=[scope, str(switch.inputs[1])])
    side.attr["T"].type = dtype
    protos, value = [read, side], "%s:%d" % (side.name, port)
    controls = [text for text in ("^" + control.name for control in node.controls) if text not in waits]
    if node.op == GATHER:
        indices = node.inputs[1]
        axis = tf.NodeDef(name=scope + "/axis", op="Const", input=["^" + indices.node.name])
        axis.attr["dtype"].type = tf.int32.as_datatype_enum
        axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
        taken = tf.NodeDef(name=node.name, op="GatherV2", input=[value, str(indices), axis.name, *controls])
        taken.attr["Tparams"].type, taken.attr["Tindices"].type = dtype, node.attrs["Tindices"]
        taken.attr["Taxis"].type = tf.int32.as_datatype_enum
        taken.attr["batch_dims"].i = node.attrs.get("batch_dims", 0)
        protos.append(axis)
    else:
        taken = tf.NodeDef(name=node.name, op="Identity", input=[value, *controls])
        taken.attr["T"].type = dtype
    graphdef.insert(node.graph, protos, before=node, origin=node)
    graphdef.become(node, taken)
