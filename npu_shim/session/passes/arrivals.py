"""Notes when the input of a collective has come: in a session's graph NpuShimArrive stands before each.

    x -> CollectiveReduce                     what the script wrote, what `rewrite` and plans show
    x -> NpuShimArrive -> CollectiveReduce    what a session of several ranks runs

The op is defined in native/arrivals.cc. By what it has noted the other ranks tell a collective that waits for them from
one whose own input stands still (`distributed.watch`).
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import in_graph, signature
from npu_shim.distributed.liveness import progress
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.native import loader

OP = "NpuShimArrive"
_marked: dict[int, tuple[str, int]] = {}  # instance key -> (node, group's key) of the collectives that may run here


def marked(graph_def: tf.GraphDef) -> tf.GraphDef:
    """Returns the graph with NpuShimArrive before each collective; the same where there is no collective.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
    """
    if not any(map(_is_collective, _all_nodes(graph_def))):
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    _mark(copy.node, "")
    for function in copy.library.function:
        _mark(function.node_def, ":y:0")  # as functions name an output
    return copy


def noted() -> dict[int, progress.Arrival]:
    """Returns what has come to the collectives of the graphs that were marked, by instance key."""
    come = loader.arrivals()
    return {key: progress.Arrival(*known, *come.get(key, (0, 0.0))) for key, known in list(_marked.items())}


def _all_nodes(graph_def):
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _is_collective(node):
    return node.op.startswith(in_graph.PREFIX) and bool(node.input) and not node.input[0].startswith("^")


def _mark(nodes, output):
    """Puts the op before the collectives of a graph or a function's body."""
    constants = {node.name: node for node in nodes if node.op == "Const"}
    arrivals = {node.name for node in nodes if node.op == OP}
    for node in list(filter(_is_collective, nodes)):
        if source_of(node.input[0]) in arrivals:  # TensorFlow's optimizers go round twice where nothing is lowered
            continue
        key = signature.instance_of(node, constants)
        if key is not None:
            _marked[key] = node.name, signature.group_of(node, constants)
            added = nodes.add(name=node.name + "/npu_shim_arrive", op=OP, device=node.device)
            added.attr["T"].CopyFrom(node.attr["T"])
            added.attr["key"].i = key
            waits = [text for text in node.input if text.startswith("^")]
            added.input.extend([node.input[0], *waits])
            rest = [text for text in node.input[1:] if not text.startswith("^")]
            del node.input[:]
            node.input.extend([added.name + output, *rest])
