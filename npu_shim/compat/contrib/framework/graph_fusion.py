"""tf.contrib.framework.fuse_op: a part of a GraphDef as one node (as of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

import tensorflow.compat.v1 as tf


def fuse_op(
    graph_def: Any, input_nodes: Sequence[str], output_nodes: Sequence[str], output_dtypes: Sequence[int],
    output_quantized: bool, op_name: str, op_type: str,
) -> Any:  # fmt: skip
    """The graph with one node in place of what lies between two sets of nodes.

    Args:
        graph_def: tf.GraphDef.
        input_nodes: names; these stay, and are the inputs of the new node.
        output_nodes: names; these stay, each with one output of the new node as its input.
        output_dtypes: numbers of the dtypes of the new node's outputs.
        output_quantized: the attribute `_output_quantized` of the new node.
        op_name: name of the new node.
        op_type: its operation.

    Raises:
        TypeError: an argument has another type, or a node in between uses a node before the inputs.
        AssertionError: there is no such node.
    """
    if not isinstance(graph_def, tf.GraphDef):
        raise TypeError("graph_def must be a graph_pb2.GraphDef proto.")
    for given, what in ((input_nodes, "input_nodes"), (output_nodes, "output_nodes")):
        if isinstance(given, str):
            raise TypeError("%s must be a list." % what)
    nodes = {node.name: node for node in graph_def.node}
    for name in (*input_nodes, *output_nodes):
        assert name in nodes, "%s is not in graph" % name
    before, upto = _ancestors(nodes, input_nodes), _ancestors(nodes, output_nodes)
    for name in upto - before - set(output_nodes):
        for source in _ancestors(nodes, [name], stop=input_nodes):
            if source in before and source not in input_nodes:
                raise TypeError("Node %s uses input %s not in input_nodes." % (name, source))
    fused = tf.GraphDef(library=graph_def.library, versions=graph_def.versions)
    fused.node.extend(node for node in graph_def.node if node.name in before)
    node = fused.node.add(name=op_name, op=op_type, input=input_nodes)
    node.attr["_output_types"].list.type[:] = output_dtypes
    node.attr["_output_quantized"].b = output_quantized
    for index, name in enumerate(output_nodes):
        node = fused.node.add()
        node.CopyFrom(nodes[name])
        node.input[:] = [op_name + (":%d" % index if index else "")]
    fused.node.extend(node for node in graph_def.node if node.name not in before | upto)
    return fused


def _ancestors(nodes: Mapping[str, Any], names: Iterable[str], stop: Iterable[str] = ()) -> set[str]:
    """These nodes and all that they depend on; what lies before a node of `stop` is left out."""
    ancestors, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name not in ancestors:
            ancestors.add(name)
            if name not in stop:
                todo += [source.split(":")[0].lstrip("^") for source in nodes[name].input]
    return ancestors
