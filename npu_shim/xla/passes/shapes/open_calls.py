"""Inlines calls of functions in steps with tensors whose size the data decide.

    y = PartitionedCall[f](tf.boolean_mask(x, m))     becomes     the nodes of f, in the step

The passes behind this one give such tensors a form that is right on padding, or refuse what takes them, node by node.
They look at the nodes of a graph; TensorFlow's sessions inline these calls, too.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import CALL
from npu_shim.xla.passes import inlined
from npu_shim.xla.passes.shapes import dynamic_shapes

SCOPE, ENTRY = "/inlined/", "entry"


def inline(module: Module, context: Any = None) -> None:
    """Inlines the calls of a step's graph, and the calls in what is inlined, if a size may be open.

    Args:
        module: a step's.
        context: not used.
    """
    callers: dict[Node, frozenset[str]] = {node: frozenset() for node in module.graph if _called(node) is not None}
    if not callers or not dynamic_shapes.may_be_open_inside(module):
        return
    while callers:
        node, above = callers.popitem()
        body = _called(node)
        if body is None or body.name in above:  # a function that calls itself
            continue
        inlined = _inline(node, body)
        callers.update({inner: above | {body.name} for inner in inlined if _called(inner) is not None})


def _called(node: Node) -> Function | None:
    """The body that a plain call runs, None for another node."""
    return next(iter(calls.functions(node)), None) if calls.kind(node) == CALL else None


def _inline(node: Node, body: Function) -> list[Node]:
    """Puts a body's nodes into the graph; the call's node stays as the name of the results. Returns the new nodes."""
    graph, scope = node.graph, node.name + SCOPE
    waits = ["^" + control.name for control in node.controls]
    protos, results = _entered(node, body, scope, waits)
    ran = [proto.name for proto in protos if inlined.is_stateful(proto.op)]
    ran += [scope + effect.name for effect in body.effects.values() if effect not in body.arguments]
    graphdef.insert(graph, protos, before=node, origin=node)
    nodes = [graph[proto.name] for proto in protos]
    for number, text in enumerate(results):
        value = node.output(number)
        value.replace_by(graph.value(text), list(value.users))
    graphdef.become(node, _named(node, body, results, [*waits, *("^" + name for name in dict.fromkeys(ran))]))
    return nodes


def _entered(node: Node, body: Function, scope: str, waits: list[str]) -> tuple[list[Any], list[str]]:
    """(NodeDefs of a body, its results); what takes nothing stands behind the first argument, in its loop or branch."""
    given = dict(zip(body.arguments, node.inputs))
    if not given:
        return inlined.as_nodes(body, given, scope, waits, waits)
    first = tf.NodeDef(name=scope + ENTRY, op="Identity", input=[str(node.inputs[0])])
    first.attr["T"].type = body.signature.inputs[0].dtype
    protos, results = inlined.as_nodes(body, given, scope, waits, ["^" + first.name])
    return [first, *protos], results


def _named(node: Node, body: Function, results: list[str], waits: list[str]) -> Any:
    """The node of the call's name: its results, behind all that ran."""
    named = tf.NodeDef(name=node.name, op="IdentityN" if results else "NoOp", input=[*results, *waits])
    if results:
        named.attr["T"].list.type.extend(output.dtype for output in body.signature.outputs)
    return named
