"""Converts function bodies to graphs and back.

f(x): y = Op(x:0)    is read as    x:Placeholder  y:Op(x)    and written back
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graphdef import functions


def as_graph(function: Any, library_def: Any) -> Any:
    """Returns the GraphDef of a function's body, its arguments Placeholders of unknown shape.

    Args:
        function: FunctionDef.
        library_def: FunctionDefLibrary that it calls into.
    """
    graph_def = tf.GraphDef(library=library_def)
    graph_def.node.extend(map(_argument, function.signature.input_arg))
    outputs = functions.Outputs({function.signature.name: function for function in library_def.function})
    protos = {node.name: node for node in function.node_def}
    for node in function.node_def:
        flat = graph_def.node.add()
        flat.CopyFrom(node)
        flat.attr.pop("_class", None)  # may name a node of another graph
        for number, text in enumerate(node.input):
            flat.input[number] = _flat(text, protos, outputs)
    return graph_def


def _argument(argument: Any) -> Any:
    node = tf.NodeDef(name=argument.name, op="Placeholder")
    node.attr["shape"].shape.unknown_rank = True
    node.attr["dtype"].type = argument.type
    return node


def results(function: Any, library_def: Any) -> list[str]:
    """Returns the tensors that a body returns, as the graph of `as_graph` names them, in the signature's order."""
    outputs = functions.Outputs({function.signature.name: function for function in library_def.function})
    protos = {node.name: node for node in function.node_def}
    return [_flat(function.ret[argument.name], protos, outputs) for argument in function.signature.output_arg]


def as_function(function: Any, graph_def: Any) -> Any:
    """Converts a GraphDef from `as_graph`, perhaps changed, back to its FunctionDef."""
    library = {function.signature.name: function for function in graph_def.library.function}
    outputs, protos = functions.Outputs(library), {node.name: node for node in graph_def.node}
    before = {node.name: node for node in function.node_def}
    arguments = {argument.name for argument in function.signature.input_arg}
    body = type(function)()
    body.CopyFrom(function)
    del body.node_def[:]
    for node in graph_def.node:
        if node.name in arguments:
            continue
        nested = body.node_def.add()
        nested.CopyFrom(node)
        for number, text in enumerate(node.input):
            nested.input[number] = _nested(text, protos, arguments, outputs)
    for name, text in function.ret.items():
        body.ret[name] = _nested(_flat(text, before, outputs), protos, arguments, outputs)
    return body


def _flat(text: str, protos: Any, outputs: Any) -> str:
    """A graph's name for the tensor that a body names `text`."""
    name, _, port = text.partition(":")
    if text[0] == "^" or not port or name not in protos:
        return name if text[0] != "^" else text
    argument, _, index = port.partition(":")
    number = outputs.number(protos[name], argument, int(index))
    return "%s:%d" % (name, number) if number else name


def _nested(text: str, protos: Any, arguments: Any, outputs: Any) -> str:
    name, _, port = text.partition(":")
    if text[0] == "^" or name in arguments:
        return text if text[0] == "^" else name
    return "%s:%s" % (name, outputs.text(protos[name], int(port or 0)))
