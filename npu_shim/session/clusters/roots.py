"""Gradients that XLA makes NaN where nothing comes in: they stay outside of clusters where a root of 0 may occur.

    tf.where(x > 0, tf.sqrt(x), 0)      at x = 0, the gradient of sqrt gets 0: TensorFlow gives 0, XLA 0 * 0.5 / 0 = NaN

Inside are those of a variance, x + epsilon or tf.maximum(x, epsilon). A step that JAX interprets gives
what TensorFlow gives.
"""

from __future__ import annotations

from npu_shim.rewriter.ir.graph import Graph, Node

GRADIENTS = frozenset(["InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad"])
AT_ZERO = frozenset(["SeluGrad"])  # takes another side at 0
PASSES_ON = frozenset(["Cast", "Identity"])
KEPT_AWAY = frozenset(["Add", "AddV2", "Maximum"])  # from 0, by a positive constant


def excluded(graph: Graph) -> set[str]:
    """Returns the names of the nodes of a graph that XLA would compute otherwise than TensorFlow."""
    risky = (node for node in graph if node.op in GRADIENTS and not _is_kept_away(node))
    return {node.name for node in risky} | {node.name for node in graph if node.op in AT_ZERO}


def _is_kept_away(gradient: Node) -> bool:
    """Whether the root that a gradient (y, dy) belongs to is of something above 0."""
    under = _source(_source(gradient))
    return under.op in KEPT_AWAY and any(_is_positive(value.node) for value in under.inputs)


def _source(node: Node) -> Node:
    """The node that a node's first input comes from; the node itself if it has none."""
    while node.inputs:
        node = node.inputs[0].node
        if node.op not in PASSES_ON:
            break
    return node


def _is_positive(node: Node) -> bool:
    while node.op in PASSES_ON:
        node = node.inputs[0].node
    return node.op == "Const" and all(number > 0 for number in node.attrs["value"].numbers())
