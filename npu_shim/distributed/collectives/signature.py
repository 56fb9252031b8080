"""The collectives of a run: those that a session's fetches need, also inside of functions that they call."""

from __future__ import annotations

import weakref
from typing import Any, Iterator, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import keys
from npu_shim.distributed.collectives.in_graph import PREFIX
from npu_shim.distributed.liveness.progress import Collective
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.walks import givers, reached

# where types have their keys that have no attributes of these names: among their inputs, as constants
INPUTS = {"CollectiveAllToAllV2": {"group_key": 2, "instance_key": 3}}


class Run(dict):  # type: ignore[type-arg]  # Python 3.7 takes no dict[int, ...] here
    """The collectives of a run by the key of their group; `plan` is what else is worked out of them, once."""

    plan: Any = None


_known = weakref.WeakKeyDictionary()  # graph -> (its version, {(fetches, feeds) -> {group key -> collectives}})


def of_run(graph: tf.Graph, fetches: Any, feed_dict: Any) -> Run:
    """Returns the collectives that a run needs; the same objects for the same run.

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
            runs[None] = Run()
    if None in runs:
        return runs[None]
    handler = tf_internals.fetch_handler(graph, fetches)
    tensors, targets = handler.fetches(), handler.targets()
    fed = frozenset(_name(key) for key in feed_dict or ())
    key = tuple(tensor.name for tensor in tensors), tuple(target.name for target in targets), fed
    if key not in runs:
        runs[key] = _by_group(graph, [*(tensor.op for tensor in tensors), *targets], fed)
    return runs[key]


def _has_any(graph):
    """Whether a graph or one of its functions has a collective: cheaper than to look at each run."""
    if any(operation.type.startswith(PREFIX) for operation in graph.get_operations()):
        return True
    return any(node.op.startswith(PREFIX) for function in _functions(graph).values() for node in function.node_def)


def _functions(graph):
    if not getattr(graph, "_functions", True):
        return {}
    return {function.signature.name: function for function in graph.as_graph_def().library.function}


def _name(key):
    return key if isinstance(key, str) else getattr(key, "name", None)


def _by_group(graph, roots, fed):
    run = Run()
    functions = _functions(graph)
    for op in _needed(roots, fed):
        constants = _constants(tensor.op.node_def for tensor in op.inputs) if op.type in INPUTS else {}
        for collective, around in _collectives_in(op.node_def, functions, constants):
            shape = op.inputs[0].shape if collective.op == op.type else None
            key = instance_of(collective, around)
            described = _described(collective, shape, group_of(collective, around), key, keys.label(graph, key))
            run.setdefault(described.group, []).append(described)
    return run


def _needed(roots, fed) -> Iterator[tf.Operation]:
    """The operations that roots need; what is fed needs nothing."""
    return reached(roots, lambda op: givers(op, fed))


def _called(node):
    """Names of the functions that a node calls."""
    one = [value.func.name for value in node.attr.values() if value.HasField("func")]
    return one + [
        function.name for value in node.attr.values() if value.HasField("list") for function in value.list.func
    ]


def _collectives_in(node, functions, constants):
    """(collective, constants around it) of a node itself and of the nodes of the functions that it calls."""
    seen, left = set(), [(node, constants)]
    while left:
        current, around = left.pop()
        if current.op.startswith(PREFIX):
            yield current, around
        for name in _called(current):
            if name in functions and name not in seen:
                seen.add(name)
                body = functions[name].node_def
                known = _constants(body)
                left.extend((inner, known) for inner in body)


def _constants(nodes):
    return {node.name: node for node in nodes if node.op == "Const"}


def instance_of(node: tf.NodeDef, constants: Mapping[str, tf.NodeDef]) -> int | None:
    """Returns the instance key of a collective; None where the graph does not say.

    Args:
        node: tf.compat.v1.NodeDef.
        constants: the constants around it by name.
    """
    return _key(node, "instance_key", constants)


def group_of(node: tf.NodeDef, constants: Mapping[str, tf.NodeDef]) -> int:
    """Returns the key of a collective's group, 0 where the graph does not say; arguments as for `instance_of`."""
    return _key(node, "group_key", constants) or 0


def _key(node, name, constants):
    if name in node.attr:
        return node.attr[name].i
    at = INPUTS.get(node.op, {}).get(name)
    source = None if at is None else constants.get(node.input[at].partition(":")[0])
    return None if source is None else int(tf.make_ndarray(source.attr["value"].tensor))


def _described(node, shape, group, instance, label):
    attributes = node.attr
    known = tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None
    dtype = tf.as_dtype(attributes["T"].type).name
    merge = attributes["merge_op"].s.decode() if "merge_op" in attributes else ""
    return Collective(node.name, node.op, dtype, known, group, instance, merge, tuple(keys.noted(instance)), label)
