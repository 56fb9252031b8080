"""Fuses the two Casts that round a float32 tensor: in a session's graph NpuShimRound replaces them.

    x -> Cast (float16) -> Cast (float32) -> MatMul        what the rewriter writes, what `rewrite` and plans show
    x -> NpuShimRound (float16) -> MatMul                  what a session on a CPU runs, with the same values

The op is defined in native/kernels.cc, so only sessions of processes that have loaded the hook get it: `rewrite()` and
`npu-shim plan --write` return graphs that any TensorFlow runs. Function bodies keep their Casts.
"""

from __future__ import annotations

import collections
from typing import Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.graph.kernel_table import device_type
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW

OP = "NpuShimRound"


def fuse_casts(graph_def: tf.GraphDef, keep: Iterable[str] = (), accelerator: str = "CPU") -> tf.GraphDef:
    """Returns a GraphDef in which one op replaces each pair of Casts that rounds on a CPU; the same if there is none.

    A Cast down with further readers stays beside the op.

    Args:
        graph_def: tf.compat.v1.GraphDef with the rewriter's marks; it is not changed.
        keep: names of nodes or tensors that are fed, fetched or run.
        accelerator: device type of the nodes without a device.
    """
    kept = set(map(source_of, keep))
    casts_down = (node for node in graph_def.node if _is_rounding_cast(node, "SrcT", "DstT", accelerator))
    lowering = {node.name: node for node in casts_down}
    casts_up = (node for node in graph_def.node if _is_rounding_cast(node, "DstT", "SrcT", accelerator))
    # a kept node may be fed: then its value is not what it computes
    pairs = {
        node.name: lowering[node.input[0]]
        for node in casts_up
        if node.input[0] in lowering and node.input[0] not in kept
    }
    if not pairs:
        return graph_def
    readers = _count_readers(graph_def)
    for down in pairs.values():
        readers[down.name] -= 1
    result = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    unread = {down.name for down in pairs.values() if not readers[down.name]}
    result.node.extend(_fuse_pair(node, pairs.get(node.name)) for node in graph_def.node if node.name not in unread)
    return result


def _is_rounding_cast(node, wide, low, accelerator):
    """Whether a node is a Cast that the rewriter marked, on a CPU of this process; `wide`, `low`: its attributes."""
    if node.op != "Cast" or ROUNDED not in node.attr or node.attr["Truncate"].b:
        return False
    return runs_here(node, accelerator) and node.attr[wide].type == FLOAT32 and node.attr[low].type in LOW


def runs_here(node: tf.NodeDef, accelerator: str) -> bool:
    """Whether a node runs on a CPU of this process; `accelerator` as of `fuse_casts`."""
    here = "/job:" not in node.device or "/job:localhost/" in node.device
    return here and (device_type(node.device) or accelerator) == "CPU"


def _count_readers(graph_def):
    """Counts the references to each node: by inputs, control inputs and colocations."""
    readers = collections.Counter()
    for node in graph_def.node:
        readers.update(map(source_of, node.input))
        if "_class" in node.attr:
            readers.update(text.decode().partition("@")[2] for text in node.attr["_class"].list.s)
    return readers


def _fuse_pair(up, down):
    """Returns the op that replaces a Cast up and the Cast down that it reads; without `down` the Cast up itself."""
    if down is None:
        return up
    node = tf.NodeDef(name=up.name, op=OP, device=up.device)
    node.input.extend(dict.fromkeys([*down.input, *up.input[1:]]))
    for key, value in up.attr.items():
        if key.startswith("_"):
            node.attr[key].CopyFrom(value)
    node.attr["to"].type = up.attr["SrcT"].type
    return node
