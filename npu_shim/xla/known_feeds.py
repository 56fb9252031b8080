"""Feeds whose values are part of a program, in a step that TensorFlow converts."""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of

KNOWN = "/known"  # suffix of a feed whose value is part of the program


def with_constants(graph_def: Any, values: Mapping[str, Any]) -> Any:
    """Replaces feeds by constants in a GraphDef, in place, and returns it; values: name of a Placeholder -> value."""
    for node in graph_def.node:
        for number, text in enumerate(node.input):
            if source_of(text) in values and text[0] != "^":
                node.input[number] = source_of(text) + KNOWN
    for name, value in values.items():
        node = graph_def.node.add(name=name + KNOWN, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return graph_def
