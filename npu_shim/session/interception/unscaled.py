"""Marks what takes a loss scale out of gradients, before TensorFlow's constant folding hides where the scale came in.

ones -> Mul(8192) -> Mul(1e-9) -> ... -> RealDiv(8192)      as it was built
Const(8.192e-06) -> ... -> Mul(1 / 8192)                    as Grappler gives it: it keeps the name of the division
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.own import scales_in, scales_left, unscaling
from npu_shim.options.collected import LOSS_SCALE
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.graph_view import UNSCALES
from npu_shim.rewriter.graphdef import reading
from npu_shim.rewriter.graphdef.inlined_names import place
from npu_shim.rewriter.graphdef.inlining import inline
from npu_shim.rewriter.inference.ranges import Ranges
from npu_shim.rewriter.planner.unscaling import unscaling_nodes
from npu_shim.rewriter.tables.function_calls import KINDS
from npu_shim.session import lines

KEPT = "_npu_shim_unscaling"  # attribute of a tf.Graph: its version, and the names of the ops found then
LEAST = 128.0  # the least power of two that is told as a loss scale, if nothing takes it out again
LEFT = (
    "a loss is multiplied by %g, as by a loss scale, and nothing was recognized that takes it out of the "
    "gradients: in float16 small ones may become 0 there. If the script scales by hand, put what divides by it into a "
    "keep_dtype_scope"
)


def mark(graph_def: Any, graph: Any) -> None:
    """Marks the nodes that take a loss scale out of gradients; a line tells of a scale that nothing takes out.

    Args:
        graph_def: tf.compat.v1.GraphDef of what a session runs, as Grappler passes it; it is changed in place.
        graph: the session's tf.Graph, as the script built it, or None.
    """
    names = _names(graph) if isinstance(graph, tf.Graph) else ()
    for node in graph_def.node if names else ():
        if place(node.name) in names:
            node.attr[UNSCALES].b = True


def _names(graph):
    version, names = getattr(graph, KEPT, (-1, ()))
    if version != graph.version:
        called = any(op.type in KINDS for op in graph.get_operations())
        scales = scales_in(graph)
        version, names = graph.version, unscaling(scales) | (_in_functions(graph) if called else set())
        setattr(graph, KEPT, (version, names))
        if not names and not called and not graph.get_collection(LOSS_SCALE):
            _tell(scales_left(scales))
    return names


def _in_functions(graph):
    """The places of ops that called functions have, once the calls are inlined, and of those around."""
    try:
        flat = inline(graph.as_graph_def()).graph_def
        view = reading.read(flat)
    except ConfigError:  # of what no session runs, such as an op that is not loaded here
        return set()
    positions = unscaling_nodes(view, Ranges(view, flat.node))
    return {place(view.nodes[position].name) for position in positions}


def _tell(scales):
    for scale in sorted(scales):
        if scale >= LEAST and math.frexp(scale)[0] == 0.5:
            lines.once(LEFT % scale)
            return
