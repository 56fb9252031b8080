"""Rounding in one pass: in a session's graph, NpuShimRound stands for the two Casts that round a float32 tensor.

    x -> Cast (float16) -> Cast (float32) -> MatMul        what the rewriter writes, what `rewrite` and plans show
    x -> NpuShimRound (float16) -> MatMul                  what a session on a CPU runs, with the same values

The op is native/rounding.cc's, so only sessions of processes that have loaded the hook get it: `rewrite()` and
`npu-shim plan --write` give graphs that any TensorFlow runs. Bodies of functions keep their Casts.
"""

import collections

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.graph.kernel_table import device_type
from npu_shim.rewriter.tables.dtypes import FLOAT16, FLOAT32

OP = "NpuShimRound"


def fused(graph_def, keep=(), accelerator="CPU"):
    """Returns a GraphDef in which each pair of Casts that rounds on a CPU is one op; the given one if there is no pair.

    A Cast down that somebody else reads stays beside the op.

    Args:
        graph_def: tf.compat.v1.GraphDef with the rewriter's marks; it is not changed.
        keep: names of nodes or tensors that are fed, fetched or run.
        accelerator: device type of the nodes that name none.
    """
    kept = {name.lstrip("^").partition(":")[0] for name in keep}
    lowering = {node.name: node for node in graph_def.node if _casts(node, FLOAT32, FLOAT16, accelerator)}
    pairs = {
        node.name: lowering[node.input[0]]
        for node in graph_def.node
        # the value of a node that is kept may be fed: then it is not what the node computes
        if _casts(node, FLOAT16, FLOAT32, accelerator) and node.input[0] in lowering and node.input[0] not in kept
    }
    if not pairs:
        return graph_def
    readers = _readers(graph_def)
    for down in pairs.values():
        readers[down.name] -= 1
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    unread = {down.name for down in pairs.values() if not readers[down.name]}
    made.node.extend(_rounding(node, pairs.get(node.name)) for node in graph_def.node if node.name not in unread)
    return made


def _casts(node, source, target, accelerator):
    """Whether a node is a Cast that the rewriter has marked, from one dtype to another, on a CPU of this process."""
    if node.op != "Cast" or ROUNDED not in node.attr or node.attr["Truncate"].b:
        return False
    here = "/job:" not in node.device or "/job:localhost/" in node.device
    on_cpu = (device_type(node.device) or accelerator) == "CPU"
    return here and on_cpu and (node.attr["SrcT"].type, node.attr["DstT"].type) == (source, target)


def _readers(graph_def):
    """How often each node is named: by inputs, by control inputs, and by colocations."""
    readers = collections.Counter()
    for node in graph_def.node:
        readers.update(text.lstrip("^").partition(":")[0] for text in node.input)
        if "_class" in node.attr:
            readers.update(text.decode().partition("@")[2] for text in node.attr["_class"].list.s)
    return readers


def _rounding(up, down):
    """The node that stands for a Cast up, given the Cast down that it reads, or None for one that stays as it is."""
    if down is None:
        return up
    made = tf.NodeDef(name=up.name, op=OP, device=up.device)
    made.input.extend(dict.fromkeys([*down.input, *up.input[1:]]))
    for key, value in up.attr.items():
        if key.startswith("_"):
            made.attr[key].CopyFrom(value)
    made.attr["to"].type = FLOAT16
    return made
