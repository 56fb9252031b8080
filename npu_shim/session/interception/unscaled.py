"""Marks what takes a loss scale out of gradients, before TensorFlow's constant folding hides where the scale came in.

ones -> Mul(8192) -> Mul(1e-9) -> ... -> RealDiv(8192)      as it was built
Const(8.192e-06) -> ... -> Mul(1 / 8192)                    as Grappler gives it: it keeps the name of the division
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.own import unscaling_in
from npu_shim.rewriter.graph.graph_view import UNSCALES

KEPT = "_npu_shim_unscaling"  # attribute of a tf.Graph: its version, and the names of the ops found then


def mark(graph_def: Any, graph: Any) -> None:
    """Marks the nodes that take a loss scale out of gradients.

    Args:
        graph_def: tf.compat.v1.GraphDef of what a session runs, as Grappler passes it; it is changed in place.
        graph: the session's tf.Graph, as the script built it, or None.
    """
    names = _names(graph) if isinstance(graph, tf.Graph) else ()
    for node in graph_def.node if names else ():
        if node.name in names:
            node.attr[UNSCALES].b = True


def _names(graph):
    version, names = getattr(graph, KEPT, (-1, ()))
    if version != graph.version:
        version, names = graph.version, unscaling_in(graph)
        setattr(graph, KEPT, (version, names))
    return names
