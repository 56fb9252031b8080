"""Allreduce calls of a script fused in the graph that a session runs.

    [hccl_ops.allreduce(each, "sum") for each in gradients]

Each call is a collective of its own in the script's graph. `mark` notes which may be fused, as the vendor's arguments
say: fusion=1 with all others, in buckets by bytes; fusion=2 with those of the same fusion_id; fusion=0 with none. When
the graph is rewritten for a session, `fuse` lays the inputs of a bucket end to end, reduces them once, and gives each
call's node its part, under its own name.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import buckets, keys
from npu_shim.distributed.job import settings
from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.ir.attributes import DType, decoded
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module

MARK, SHAPE = "_npu_shim_fusion", "_npu_shim_fusion_shape"
REDUCE = "CollectiveReduce"
INT32 = DType(tf.int32.as_datatype_enum)
FIRST_KEY, KEYS = 2**30 + 2**10, 2**30 - 2**11  # instance keys of fused calls, above those of `keys`

_taken: dict[int, str] = {}  # key of a fused call -> the keys of those in it


def mark(reduced: tf.Tensor, fusion: int, fusion_id: int) -> None:
    """Notes that the collective which makes a tensor may be fused with others of its mark.

    What is inside of a loop, a conditional or a function, or has a shape that is not known, stays alone.
    """
    op, graph = reduced.op, reduced.graph
    alone = hasattr(graph, "outer_graph") or op._control_flow_context is not None
    if not fusion or alone or op.type != REDUCE or not reduced.shape.is_fully_defined():
        return
    word = "by bytes" if fusion == 1 else "by id %d" % fusion_id
    op._set_attr(MARK, tf.AttrValue(s=word.encode()))
    op._set_attr(SHAPE, tf.AttrValue(shape=reduced.shape.as_proto()))


def fuse(module: Module) -> None:
    """Fuses the marked collectives of a module's graph."""
    marked = dict.fromkeys(node for node in module.graph if node.op == REDUCE and MARK in node.attrs)
    levels = _levels(module.graph, marked)
    groups: dict[tuple[Any, ...], list[Node]] = {}
    for node in sorted(marked, key=lambda node: -node.attrs["instance_key"]):
        groups.setdefault((levels[node], *_kind(node)), []).append(node)
    for nodes in groups.values():
        for bucket in _buckets(nodes):
            if len(bucket) > 1:
                _fuse(bucket)


def _kind(node):
    return (node.device, *map(node.attrs.get, (MARK, "T", "group_key", "group_size", "merge_op", "final_op")))


def _buckets(nodes: Sequence[Node]) -> list[list[Node]]:
    # numbers as names: the order of the keys, which all ranks have in common
    last = len(nodes) - 1
    members = [buckets.Member(str(last - at), "", _bytes(node)) for at, node in enumerate(nodes)]
    by_bytes, size = nodes[0].attrs[MARK] == b"by bytes", nodes[0].attrs["group_size"]
    limit = settings.bucket_bytes(size) if by_bytes else float("inf")
    return [[nodes[at] for at in bucket] for bucket in buckets.by_bytes(members, limit)]


def _elements(node):
    return int(np.prod(node.attrs[SHAPE].dims, dtype=int))


def _bytes(node):
    return _elements(node) * tf.as_dtype(node.attrs["T"]).size


def _levels(graph, marked):
    """Returns node -> how many marked nodes come before it on the longest way: equals do not need each other."""
    levels: dict[Node, int] = {}
    for node in order.topological(graph):
        sources = [source for source in node.sources() if source in levels]  # not those of a loop's next iteration
        levels[node] = max((levels[source] + (source in marked) for source in sources), default=0)
    return levels


def _fuse(nodes):
    """Makes nodes parts of one collective; each keeps its name and its consumers."""
    first, scope = nodes[0], nodes[0].name + "/npu_shim_fused"
    dtype, add = first.attrs["T"], functools.partial(first.graph.add, device=first.device, origin=first)
    flat = []
    for at, node in enumerate(nodes):
        name = "%s/in_%d" % (scope, at)
        flat.append(add(name, "Reshape", attrs={"T": dtype, "Tshape": INT32}))
        flat[-1].set_inputs([node.inputs[0], _constant(add, name + "/shape", [-1])])
    axis = _constant(add, scope + "/axis", 0)
    values = [*(node.value for node in flat), axis]
    joined = add(scope + "/concat", "ConcatV2", values, attrs={"N": len(nodes), "T": dtype, "Tidx": INT32})
    waits = sorted({wait for node in nodes for wait in node.controls}, key=lambda wait: wait.name)
    attrs = {name: value for name, value in first.attrs.items() if name not in (MARK, SHAPE)}
    attrs["instance_key"] = _key(",".join(str(node.attrs["instance_key"]) for node in nodes))
    whole = add(scope + "/all", REDUCE, [joined.value], waits, attrs)
    sizes = _constant(add, scope + "/sizes", list(map(_elements, nodes)))
    attrs = {"num_split": len(nodes), "T": dtype, "Tlen": INT32}
    parts = add(scope + "/split", "SplitV", [whole.value, sizes, axis], attrs=attrs)
    for at, node in enumerate(nodes):
        shape = _constant(add, "%s/shape_%d" % (scope, at), list(node.attrs[SHAPE].dims))
        for name in node.attrs:
            del node.attrs[name]
        node.attrs["T"], node.attrs["Tshape"] = dtype, INT32
        node.set_op("Reshape")
        node.set_inputs([parts.output(at), shape])
        node.set_controls([])


def _key(parts):
    """Returns the key of the collective in place of those with other keys; no two of a process have the same.

    All ranks fuse the same graphs in the same order, so that where two fall on one key, all give it to the same one.
    """
    tries = (FIRST_KEY + keys.wide(parts + " again" * times) % KEYS for times in itertools.count())
    return next(key for key in tries if _taken.setdefault(key, parts) == parts)


def _constant(add, name, numbers):
    proto = tf.make_tensor_proto(numbers, tf.int32)
    return add(name, "Const", attrs={"dtype": INT32, "value": decoded(tf.AttrValue(tensor=proto))}).value
