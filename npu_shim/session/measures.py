"""What calibration measures of a tensor where it is computed: six numbers, by ordinary ops.

    x -> Abs -> IsFinite, Greater, Select, Max, Min, Sum ... -> ConcatV2      in the graph that a script has and saves
    x -> NpuShimMeasure                                                       what a session on a CPU runs, in one pass

The op is defined in native/kernels.cc, so only sessions of processes that have loaded the hook run it.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.tables.dtypes import INFINITE_FROM, ZERO_UP_TO
from npu_shim.session import rounding

OP = "NpuShimMeasure"
MARK = "_npu_shim_measures"  # attribute of the last of a tensor's ordinary ops
FIRST = "Abs"  # the op that reads the tensor
MANY = 64  # nodes, more than the ordinary ops are


def of(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the measures of a float tensor.

    Returns:
        float64 [6]: largest finite magnitude, 0 where there is none; smallest magnitude above zero, infinity where
        there is none; numbers of values: of all, of those that float16 makes infinite (or that are), of those that it
        makes zero, of those that are not finite.
    """
    with tf.device(tensor.op.device or None):
        size = tf.abs(tensor if tensor.dtype == tf.float32 else tf.cast(tensor, tf.float32))
        finite, positive = tf.math.is_finite(size), size > 0.0
        largest = tf.maximum(tf.reduce_max(tf.where_v2(finite, size, 0.0)), 0.0)
        smallest = tf.reduce_min(tf.where_v2(positive, size, np.float32(np.inf)))
        counts = [
            tf.size(size, out_type=tf.int64),
            _count(size >= INFINITE_FROM),
            _count(tf.logical_and(positive, size <= ZERO_UP_TO)),
            _count(tf.logical_not(finite)),
        ]
        made = tf.concat([tf.cast(tf.stack(each), tf.float64) for each in ([largest, smallest], counts)], 0)
    made.op._set_attr(MARK, tf.AttrValue(b=True))
    return made


def _count(truths):
    return tf.reduce_sum(tf.cast(truths, tf.int64))


def fuse(graph_def: tf.GraphDef, keep: Iterable[str] = (), accelerator: str = "CPU") -> tf.GraphDef:
    """Returns a GraphDef in which one op measures each tensor on a CPU; the same if none is measured.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        keep: names of nodes or tensors that are fed, fetched or run.
        accelerator: device type of the nodes without a device.
    """
    marked = [node for node in graph_def.node if MARK in node.attr and rounding.runs_here(node, accelerator)]
    if not marked:
        return graph_def
    nodes = {node.name: node for node in graph_def.node}
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    replaced, unread = {}, set()
    for node in marked:
        source, inside = _measured(node, nodes)
        if source is not None:
            waits = arguments.controls(node)
            replaced[node.name] = tf.NodeDef(name=node.name, op=OP, device=node.device, input=[source, *waits])
            unread |= inside
    needed = _needed(nodes, replaced, unread.difference(map(source_of, keep)))
    made.node.extend(replaced.get(node.name, node) for node in graph_def.node if node.name in needed)
    return made


def _measured(node, nodes):
    """(the tensor that ordinary ops measure, their names); None for the tensor where they are not those of `of`."""
    waiting, inside, sources = [node.name], set(), set()
    while waiting and len(inside) < MANY:
        each = nodes[waiting.pop()]
        inside.add(each.name)
        if each.op == FIRST:
            sources.add(each.input[0])
        else:
            found = {source_of(text) for text in arguments.data(each)}
            waiting.extend(found - inside)
    return (sources.pop() if len(sources) == 1 and not waiting else None), inside - {node.name}


def _needed(nodes, replaced, unread):
    """Names of the nodes that are left: those of `unread` only where others still read them."""
    found, waiting = set(), [name for name in nodes if name not in unread]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(map(source_of, replaced.get(name, nodes[name]).input))
    return found
