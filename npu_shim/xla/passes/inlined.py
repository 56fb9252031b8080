"""What a function's body computes, as nodes of the graph that calls it."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Function


def nodes_of(body: Function) -> list[Node]:
    """The nodes of a body, without its arguments."""
    return [node for node in body if node not in body.arguments]


def is_stateful(op: str) -> bool:
    """Whether an op has a state; of a function's name, which stands for a call, it is not known, and so True."""
    known = tf_internals.op_defs()
    return op not in known or known[op].is_stateful


def written_as(node: Node, name: str, inputs: Iterable[str], proto: Any) -> Any:
    """Makes an empty NodeDef what a node of a body is in a graph, with its name and inputs there, and returns it."""
    graphdef.written(node, proto)
    proto.name = name
    proto.input[:] = inputs
    proto.attr.pop("_class", None)  # may name a node of another graph
    return proto


def as_nodes(
    body: Function, given: Mapping[Node, Value], scope: str, waits: Iterable[str], starts: Iterable[str] = ()
) -> tuple[list[Any], list[str]]:
    """Returns (NodeDefs of a body, its results as inputs name them).

    Args:
        body: the function's.
        given: its arguments -> the tensors of the call.
        scope: what the names of the nodes begin with.
        waits: control inputs, as texts, of the nodes that have a state.
        starts: those of the nodes that take nothing, which are in no loop or branch by themselves.
    """
    protos = []
    for inner in nodes_of(body):
        inputs = [_text(value, given, scope) for value in inner.inputs]
        inputs += ["^" + (given[source].node.name if source in given else scope + source.name)
                   for source in inner.controls]  # fmt: skip
        proto = written_as(inner, scope + inner.name, inputs, tf.NodeDef())
        if is_stateful(inner.op):
            proto.input.extend(text for text in dict.fromkeys(waits) if text not in proto.input)
        if not proto.input:
            proto.input.extend(starts)
        protos.append(proto)
    return protos, [_text(value, given, scope) for value in body.returned]


def _text(value: Value, given: Mapping[Node, Value], scope: str) -> str:
    """A tensor of a body as inputs of the graph around it name it."""
    return str(given[value.node]) if value.node in given else scope + str(value)
