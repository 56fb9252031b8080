"""What TensorFlow checks when a step runs and XLA does not: errors that become numbers. Said once, before they can."""

from __future__ import annotations

import functools
import logging
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graphdef import registry
from npu_shim.session.clusters.marking import MARK

LOG = logging.getLogger("npu_shim")
SHOWN = 3  # node names in a line
INTEGERS = frozenset(dtype.as_datatype_enum for dtype in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16))
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
}  # source: TensorFlow 2.15.1, tried on CPU


def tell(graph_def: Any) -> None:
    """Logs what XLA does instead of an error in a compiled step, with nodes of its GraphDef; once a process each."""
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    for what, names in _found(nodes):
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
    marked = (node for node in graph_def.node if MARK in node.attr and node.attr[MARK].b)
    for what, names in _found(node for node in marked if node.op in kernels):
        _once(what, names, session)


def _found(nodes):
    """Yields (what happens, names of the nodes that it happens to)."""
    nodes = list(nodes)
    for what, (ops, integers) in KINDS.items():
        names = [n.name for n in nodes if _is_of(n.op, ops) and (not integers or n.attr["T"].type in INTEGERS)]
        if names:
            yield what, names


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
