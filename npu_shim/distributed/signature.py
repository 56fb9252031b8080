"""The collectives of a run: those that a session's fetches need, also inside of functions that they call."""

from __future__ import annotations

import weakref
from typing import Any, Iterator, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.distributed import keys
from npu_shim.distributed.progress import Collective
from npu_shim.rewriter import tf_internals

PREFIX = "Collective"  # of the types of TensorFlow's collectives

_known = weakref.WeakKeyDictionary()  # graph -> (its version, {(fetches, feeds) -> {group key -> collectives}})


def of_run(graph: tf.Graph, fetches: Any, feed_dict: Any) -> Mapping[int, list[Collective]]:
    """Returns the collectives that a run needs by the key of their group; the same objects for the same run.

    Args:
        graph: the session's.
        fetches: as for Session.run.
        feed_dict: as for Session.run, or None.
    """
    version, runs = _known.get(graph, (None, {}))
    if version != graph.version:  # only new nodes can have come, but a node can have got control inputs
        runs = {}
        _known[graph] = graph.version, runs
        if not _has_any(graph):
            runs[None] = {}
    if None in runs:
        return {}
    handler = tf_internals.fetch_handler(graph, fetches)
    tensors, targets = handler.fetches(), handler.targets()
    fed = frozenset(_name(each) for each in feed_dict or ())
    key = tuple(each.name for each in tensors), tuple(each.name for each in targets), fed
    if key not in runs:
        runs[key] = _by_group(graph, [*(each.op for each in tensors), *targets], fed)
    return runs[key]


def _has_any(graph):
    """Whether a graph or one of its functions has a collective: cheaper than to look at each run."""
    if any(each.type.startswith(PREFIX) for each in graph.get_operations()):
        return True
    return any(node.op.startswith(PREFIX) for function in _functions(graph).values() for node in function.node_def)


def _functions(graph):
    if not getattr(graph, "_functions", True):
        return {}
    return {each.signature.name: each for each in graph.as_graph_def().library.function}


def _name(key):
    return key if isinstance(key, str) else getattr(key, "name", None)


def _by_group(graph, roots, fed):
    found: dict[int, list[Collective]] = {}
    functions = _functions(graph)
    for op in _needed(roots, fed):
        for each in _collectives_in(op.node_def, functions):
            shape = op.inputs[0].shape if each.op == op.type else None
            found.setdefault(each.attr["group_key"].i, []).append(_described(each, shape))
    return found


def _needed(roots, fed) -> Iterator[tf.Operation]:
    """The operations that roots need; what is fed needs nothing."""
    seen, left = set(), list(roots)
    while left:
        op = left.pop()
        if op in seen:
            continue
        seen.add(op)
        yield op
        left.extend(each.op for each in op.inputs if each.name not in fed)
        left.extend(op.control_inputs)


def _called(node):
    """Names of the functions that a node calls."""
    one = [value.func.name for value in node.attr.values() if value.HasField("func")]
    return one + [each.name for value in node.attr.values() if value.HasField("list") for each in value.list.func]


def _collectives_in(node, functions):
    """A node itself, and the nodes of the functions that it calls, as far as they are collectives."""
    seen, left = set(), [node]
    while left:
        each = left.pop()
        if each.op.startswith(PREFIX):
            yield each
        for name in _called(each):
            if name in functions and name not in seen:
                seen.add(name)
                left.extend(functions[name].node_def)


def _described(node, shape):
    attributes = node.attr
    instance = attributes["instance_key"].i if "instance_key" in attributes else None
    known = tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None
    dtype = tf.as_dtype(attributes["T"].type).name
    merge = attributes["merge_op"].s.decode() if "merge_op" in attributes else ""
    moves = tuple(keys.noted(instance))
    return Collective(node.name, node.op, dtype, known, attributes["group_key"].i, instance, merge, moves)
