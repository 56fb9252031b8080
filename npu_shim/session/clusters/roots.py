"""Gradients that XLA makes NaN where nothing comes in: they stay outside of clusters where a root of 0 may occur.

    tf.where(x > 0, tf.sqrt(x), 0)      at x = 0, the gradient of sqrt gets 0: TensorFlow gives 0, XLA 0 * 0.5 / 0 = NaN

Inside are those of a variance, x + epsilon or tf.maximum(x, epsilon). A compiled step has another form of these ops
(xla/passes/legalize/ops/gradients.py).
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import data, source_of

GRADIENTS = frozenset(["InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad"])
AT_ZERO = frozenset(["SeluGrad"])  # takes another side at 0
PASSES_ON = frozenset(["Cast", "Identity"])
KEPT_AWAY = frozenset(["Add", "AddV2", "Maximum"])  # from 0, by a positive constant


def left_out(graph_def: tf.GraphDef) -> set[str]:
    """Returns the names of the nodes of a GraphDef that XLA would compute otherwise than TensorFlow."""
    nodes = {node.name: node for node in graph_def.node}
    risky = (node for node in graph_def.node if node.op in GRADIENTS and not _is_kept_away(node, nodes))
    return {node.name for node in risky} | {node.name for node in graph_def.node if node.op in AT_ZERO}


def _is_kept_away(gradient: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether the root that a gradient (y, dy) belongs to is of something above 0."""
    root = _source(gradient, nodes)
    under = _source(root, nodes)
    return under.op in KEPT_AWAY and any(_is_positive(text, nodes) for text in data(under))


def _source(node: Any, nodes: Mapping[str, Any]) -> Any:
    """The node that a node's first input comes from; the node itself if it has none."""
    while data(node):
        node = nodes[source_of(data(node)[0])]
        if node.op not in PASSES_ON:
            break
    return node


def _is_positive(text: str, nodes: Mapping[str, Any]) -> bool:
    node = nodes[source_of(text)]
    while node.op in PASSES_ON:
        node = nodes[source_of(node.input[0])]
    return node.op == "Const" and bool((tf.make_ndarray(node.attr["value"].tensor) > 0).all())
