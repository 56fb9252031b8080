"""Allreduce calls of a script fused in the graph that a session runs.

    [hccl_ops.allreduce(each, "sum") for each in gradients]

Each call is a collective of its own in the script's graph. `mark` notes which may be fused, as the vendor's arguments
say: fusion=1 with all others, in buckets by bytes; fusion=2 with those of the same fusion_id; fusion=0 with none. When
the graph is rewritten for a session, `fused` lays the inputs of a bucket end to end, reduces them once, and gives each
call's node its part, under its own name.
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import buckets, keys
from npu_shim.distributed.job import settings

MARK, SHAPE = "_npu_shim_fusion", "_npu_shim_fusion_shape"
REDUCE = "CollectiveReduce"
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


def fused(graph_def: tf.GraphDef) -> tf.GraphDef:
    """Returns the graph with its marked collectives fused, or the graph itself where there is nothing to fuse."""
    marked = [node for node in graph_def.node if MARK in node.attr]
    if len(marked) < 2:
        return graph_def
    levels = _levels(graph_def, {node.name for node in marked})
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for node in sorted(marked, key=lambda node: -node.attr["instance_key"].i):
        groups.setdefault((levels[node.name], *_kind(node)), []).append(node)
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    own = {node.name: node for node in made.node}
    for nodes in groups.values():
        for bucket in _buckets(nodes):
            if len(bucket) > 1:
                _fuse(made, [own[node.name] for node in bucket])
    return made


def _kind(node):
    return (node.attr[MARK].s, node.device, *(node.attr[name].SerializeToString(deterministic=True)
            for name in ("T", "group_key", "group_size", "merge_op", "final_op")))  # fmt: skip


def _buckets(nodes: Sequence[Any]) -> list[list[Any]]:
    # numbers as names: the order of the keys, which all ranks have in common
    last = len(nodes) - 1
    members = [buckets.Member(str(last - at), "", _bytes(node)) for at, node in enumerate(nodes)]
    by_bytes, size = nodes[0].attr[MARK].s == b"by bytes", nodes[0].attr["group_size"].i
    limit = settings.bucket_bytes(size) if by_bytes else float("inf")
    return [[nodes[at] for at in bucket] for bucket in buckets.by_bytes(members, limit)]


def _elements(node):
    count = 1
    for dim in node.attr[SHAPE].shape.dim:
        count *= dim.size
    return count


def _bytes(node):
    return _elements(node) * tf.as_dtype(node.attr["T"].type).size


def _levels(graph_def, marked):
    """Returns marked node -> how many marked nodes come before it on the longest way: equals do not need each other."""
    inputs = {node.name: [] if node.op in ("NextIteration", "RefNextIteration") else [
        each.lstrip("^").partition(":")[0] for each in node.input] for node in graph_def.node}  # fmt: skip
    level: dict[str, int] = {}
    waiting = [(name, False) for name in marked]
    while waiting:
        name, is_ready = waiting.pop()
        if is_ready:
            level[name] = max((level[each] + (each in marked) for each in inputs[name]), default=0)
        elif name not in level:
            waiting.append((name, True))
            waiting += [(each, False) for each in inputs[name] if each not in level]
    return {name: level[name] for name in marked}


def _fuse(graph, nodes):
    """Makes nodes parts of one collective; each keeps its name and its consumers."""
    first, scope = nodes[0], nodes[0].name + "/npu_shim_fused"
    dtype = first.attr["T"].type
    flat = [_reshaped(graph, "%s/in_%d" % (scope, at), node.input[0], [-1], node) for at, node in enumerate(nodes)]
    axis = _constant(graph, scope + "/axis", 0, first)
    joined = graph.node.add(name=scope + "/concat", op="ConcatV2", device=first.device, input=[*flat, axis])
    joined.attr["N"].i, joined.attr["T"].type, joined.attr["Tidx"].type = len(nodes), dtype, tf.int32.as_datatype_enum
    waits = sorted({each for node in nodes for each in node.input if each.startswith("^")})
    whole = graph.node.add(name=scope + "/all", op=REDUCE, device=first.device, input=[joined.name, *waits])
    for name, value in first.attr.items():
        if name not in (MARK, SHAPE):
            whole.attr[name].CopyFrom(value)
    whole.attr["instance_key"].i = _key(",".join(str(node.attr["instance_key"].i) for node in nodes))
    sizes = _constant(graph, scope + "/sizes", [_elements(node) for node in nodes], first)
    parts = graph.node.add(name=scope + "/split", op="SplitV", device=first.device, input=[whole.name, sizes, axis])
    parts.attr["num_split"].i, parts.attr["T"].type = len(nodes), dtype
    parts.attr["Tlen"].type = tf.int32.as_datatype_enum
    for at, node in enumerate(nodes):
        shape = [dim.size for dim in node.attr[SHAPE].shape.dim]
        node.op = "Reshape"
        del node.input[:]
        node.input.extend(["%s:%d" % (parts.name, at), _constant(graph, "%s/shape_%d" % (scope, at), shape, node)])
        node.attr.clear()
        node.attr["T"].type, node.attr["Tshape"].type = dtype, tf.int32.as_datatype_enum


def _key(parts):
    """Returns the key of the collective in place of those with other keys; no two of a process have the same.

    All ranks fuse the same graphs in the same order, so that where two fall on one key, all give it to the same one.
    """
    tries = (FIRST_KEY + keys.wide(parts + " again" * times) % KEYS for times in itertools.count())
    return next(key for key in tries if _taken.setdefault(key, parts) == parts)


def _reshaped(graph, name, source, shape, like):
    made = graph.node.add(name=name, op="Reshape", device=like.device)
    made.input.extend([source, _constant(graph, name + "/shape", shape, like)])
    made.attr["T"].type, made.attr["Tshape"].type = like.attr["T"].type, tf.int32.as_datatype_enum
    return name


def _constant(graph, name, value, like):
    made = graph.node.add(name=name, op="Const", device=like.device)
    made.attr["dtype"].type = tf.int32.as_datatype_enum
    made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    return name
