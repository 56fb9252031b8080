"""Builds the nodes that replace one node, in the loop and branch of its inputs."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

SET_ROWS = "XlaSetDynamicDimensionSize"


def nodes(
    scope: str, taken: Sequence[tuple[str, Any]], build: Callable[..., Any], first: str | None = None
) -> list[Any]:
    """Returns the NodeDefs that `build` makes.

    Args:
        scope: prefix of their names, such as "v/choice/".
        taken: list of (tensor in input notation, its tf.DType), the arguments of `build`.
        build: function of tensors that builds ops in a graph of its own.
        first: name of an op in the scope; constants wait for it, so that they are in its loop and branch. None outside
            of loops and branches.
    """
    with tf.Graph().as_default() as graph:
        given = [tf.placeholder(dtype, name="%sin%d" % (scope, number)) for number, (_, dtype) in enumerate(taken)]
        with tf.name_scope(scope):
            build(*given)
    nodes = [node for node in graph.as_graph_def().node if node.op != "Placeholder"]
    texts = {tensor.op.name: text for tensor, (text, _) in zip(given, taken)}
    for node in nodes:
        for number, text in enumerate(node.input):
            node.input[number] = texts.get(text, text)
        if node.op == "Const" and first is not None:
            node.input.append("^" + scope + first)
    return nodes


def with_rows(tensor: Any, axis: Any, count: Any, name: str | None = None) -> Any:
    """Returns a tensor of which XLA counts `count` rows along an axis; both are int32 scalars, the axis a constant."""
    return tf.get_default_graph().create_op(SET_ROWS, [tensor, axis, count], [tensor.dtype], name=name).outputs[0]
