"""What TensorFlow checks when a step runs and XLA does not: errors that become numbers. Said once, before they can."""

from __future__ import annotations

import collections
import functools
import logging
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import data, source_of
from npu_shim.rewriter.graphdef import registry
from npu_shim.session.clusters.marking import MARK

LOG = logging.getLogger("npu_shim")
SHOWN = 3  # node names in a line
INTEGERS = frozenset(dtype.as_datatype_enum for dtype in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16))
SIZES = ("Shape", "ShapeN", "Size", "Rank", "Const")
GATHERS = ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd")
UPDATES = (
    "ScatterAdd", "ScatterSub", "ScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate",
    "SparseApply*", "ResourceSparseApply*",
)  # fmt: skip
DIVISIONS = ("Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod")
# what happens -> (ops, those with a * by how they begin; whether for integers only)
KINDS = {
    "takes the last row for an index that is out of range": (GATHERS, False),
    "gives -1 for an integer divided by zero": (DIVISIONS, True),
    "gives NaN for a label that is out of range": (("SparseSoftmaxCrossEntropyWithLogits",), False),
    "leaves out an update of a row whose index is out of range": (UPDATES, False),
    "stays at the limit of a counter": (("CountUpTo", "ResourceCountUpTo"), False),
    "gives an infinite CTC loss where labels need more time than there is": (("CTCLoss",), False),
    "ignores tf.check_numerics": (("CheckNumerics", "CheckNumericsV2"), False),
    "ignores tf.Assert": (("Assert",), False),
}  # source: TensorFlow 2.15.1, tried on CPU


def tell(graph_def: Any) -> None:
    """Logs what XLA does instead of an error in a compiled step, with nodes of its GraphDef; once a process each."""
    for nodes in [graph_def.node, *(function.node_def for function in graph_def.library.function)]:
        for what, names in _found(nodes, nodes):
            _once(what, names)


def tell_of_clusters(graph_def: Any, session: Any) -> None:
    """Logs it for the nodes of a GraphDef that are marked for clusters; once a session each.

    Args:
        graph_def: of `marking.mark`.
        session: what tells the session from others.
    """
    if tf.__version__.startswith("1."):  # does not tell which kernels XLA has
        return
    kernels = registry.xla_kernels()
    # asking a node for an attribute that it lacks would add it
    marked = [node for node in graph_def.node if MARK in node.attr and node.attr[MARK].b and node.op in kernels]
    for what, names in _found(marked, graph_def.node):
        _once(what, names, session)


def _found(nodes, graph):
    """Yields (what happens, names of the nodes that it happens to); `graph` has the nodes, and all that they read."""
    harmless, present = None, {node.op for node in nodes}
    for what, (ops, integers) in KINDS.items():
        wanted = {op for op in present if _is_of(op, ops)}
        of_kind = [node for node in nodes if node.op in wanted] if wanted else []
        of_kind = [node for node in of_kind if not integers or node.attr["T"].type in INTEGERS]
        if of_kind and harmless is None:
            harmless = _of_sizes(graph) | _by_constants(graph)
        names = [node.name for node in of_kind if node.name not in harmless]
        if names:
            yield what, names


def _of_sizes(nodes):
    """Names of the nodes that compute with shapes and constants alone, of which TensorFlow and XLA know as much."""
    users, waits = collections.defaultdict(list), {}
    for node in nodes:
        sources = set() if node.op in SIZES else set(map(source_of, data(node)))
        waits[node.name] = len(sources)
        for source in sources:
            users[source].append(node.name)
    ready = [node.name for node in nodes if node.op in SIZES]
    sizes = set(ready)
    while ready:
        for user in users[ready.pop()]:
            waits[user] -= 1
            if not waits[user]:
                sizes.add(user)
                ready.append(user)
    return sizes


def _by_constants(nodes):
    """Names of the divisions by constants without a zero."""
    constants = {node.name: node for node in nodes if node.op == "Const"}
    divided = ((node, constants.get(source_of(node.input[1]))) for node in nodes if node.op in DIVISIONS)
    return {node.name for node, by in divided if by is not None and tf.make_ndarray(by.attr["value"].tensor).all()}


def _is_of(op, ops):
    return any(op == each or (each[-1] == "*" and op.startswith(each[:-1])) for each in ops)


@functools.lru_cache(maxsize=None)
def _said(what, session):
    return []


def _once(what, names, session=None):
    if not _said(what, session):
        _said(what, session).extend(names)
        more = ", ... (%d in all)" % len(names) if len(names) > SHOWN else ""
        shown = ", ".join("'%s'" % name for name in names[:SHOWN]) + more
        LOG.warning("npu_shim: compiled by XLA, a step %s, where TensorFlow ends it with an error: %s", what, shown)
