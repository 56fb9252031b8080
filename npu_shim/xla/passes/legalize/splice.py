"""Replaces a node by the ops that its table row builds.

    u:Op(v, x, ^c)    becomes   u/lowered/in1:Identity(x)   u/lowered/read:ReadVariableOp(v, ^u/lowered/in1, ^c)   ...
                                u:NoOp(^the writes, ^c)   or   u:Identity(the result, ^c)

Ops on the variable have all inputs of the op as control inputs, since the op read and wrote when it ran. Constants wait
for an input, so that they are in its loop and branch.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node
from npu_shim.xla.passes import function_names
from npu_shim.xla.passes.legalize.facts import Facts
from npu_shim.xla.passes.legalize.site import Site, Variable

SCOPE = "/lowered/"


def in_place_of(node: Node, build: Callable[[Site], Any], facts: Facts) -> tuple[list[Any], list[Any]]:
    """Returns (NodeDefs, FunctionDefs) that replace a node; the last NodeDef has its name.

    Args:
        node: the node.
        build: the table row of its op.
        facts: `facts.Facts` of the graph.
    """
    data, waits = [str(value) for value in node.inputs], ["^" + control.name for control in node.controls]
    scope = node.name + SCOPE
    with tf.Graph().as_default() as graph:
        inputs = tuple(_input(node, facts, scope, number) for number in range(len(data)))
        with tf.name_scope(scope):
            result = build(Site(node, inputs, facts.distinct(node), facts.constants(node)))
    graph_def = graph.as_graph_def()
    handles = {"%sin%d" % (scope, k): data[k] for k, given in enumerate(inputs) if isinstance(given, Variable)}
    nodes = [proto for proto in graph_def.node if proto.name not in handles]
    arrived = _take_inputs(nodes, scope, data)
    for new in nodes:
        takes = [text for text in new.input if text in handles]
        if takes:
            new.input.extend(dict.fromkeys(["^" + name for name in arrived] + waits))
        each_inputs = [handles.get(text, text) for text in new.input]
        if not each_inputs:
            each_inputs = ["^" + (arrived[0] if arrived else node.inputs[0].node.name)]
        del new.input[:]
        new.input.extend(each_inputs)
    nodes.append(_result(node, result, waits))
    function_names.rename(graph_def.library.function, nodes, hashlib.sha256(node.name.encode()).hexdigest()[:16])
    return nodes, graph_def.library.function


def replace(node: Node, protos: Sequence[Any], functions: Iterable[Any]) -> None:
    """Replaces a node by what `in_place_of` returned."""
    graphdef.add_functions(node.graph.module, functions)
    graphdef.insert(node.graph, protos[:-1], before=node, origin=node)
    graphdef.become(node, protos[-1])


def _input(node, facts, scope, number):
    name = "%sin%d" % (scope, number)
    dtype, shape = facts.value_of(node, number)
    if facts.tensor(node.inputs[number]).dtype != tf.resource:
        return tf.placeholder(dtype, shape, name)
    return Variable(tf.placeholder(tf.resource, [], name), dtype, shape)


def _take_inputs(nodes, scope, data):
    """Turns the placeholders of tensors into Identities of the node's inputs; returns their names."""
    arrived = []
    for node in nodes:
        if node.op == "Placeholder":
            node.op = "Identity"
            node.attr["T"].type = node.attr["dtype"].type
            del node.attr["dtype"], node.attr["shape"]
            node.input.append(data[int(node.name[len(scope) + 2 :])])
            arrived.append(node.name)
    return arrived


def _result(node, outputs, waits):
    """The node of the old name, which returns the results or waits for the writes."""
    if isinstance(outputs, tf.Tensor):
        result = tf.NodeDef(name=node.name, op="Identity", input=[outputs.op.name + _port(outputs), *waits])
        result.attr["T"].type = outputs.dtype.as_datatype_enum
        return result
    if outputs and isinstance(outputs[0], tf.Tensor):
        result = tf.NodeDef(name=node.name, op="IdentityN", input=[t.op.name + _port(t) for t in outputs] + waits)
        result.attr["T"].list.type.extend(t.dtype.as_datatype_enum for t in outputs)
        return result
    return tf.NodeDef(name=node.name, op="NoOp", input=["^" + op.name for op in outputs] + waits)


def _port(tensor):
    return ":%d" % tensor.value_index if tensor.value_index else ""
