"""Scopes of ops that TensorFlow's arithmetic optimizer has replaced: the new op gets the attributes of the old ones.

    with keep_dtype_scope(): y = a + b + c      add, add_1: AddV2, _keep_dtype                      as it was built
                                                ArithmeticOptimizer/AddOpsRewrite_add_1: AddN       as Grappler gives it

Where only some of the old ops are in a scope, all of the new one is.

Constant folding keeps the name of an op whose type it changes: x / 3 becomes x * (1 / 3). What lists and
customize_dtypes ask of the type that the script built holds for the new one, in functions too; but for inputs that are
no longer there, as where x * 1 becomes BroadcastTo(x, shape).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.customize import Custom
from npu_shim.options.precision import Precision
from npu_shim.rewriter.graph.graph_view import KEEP, TO_FLOAT
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.graphdef.inlined_names import place
from npu_shim.rewriter.tables.op_table import Entry

MADE = "ArithmeticOptimizer/"  # in the name of each op that it makes: SCOPE/ArithmeticOptimizer/STAGE_OLD
REPLACED = ("Add", "AddV2", "AddN", "Mul")  # the types of ops of which one new op replaces several
UNASKED = Custom((), (), 0)


def mark(graph_def: Any, graph: tf.Graph) -> None:
    """Copies the attributes of scopes to the nodes that replace the ops in them; a node's own attributes win.

    Args:
        graph_def: tf.compat.v1.GraphDef of what a session runs, as Grappler passes it; it is changed in place.
        graph: the session's, as the script built it.
    """
    nodes = [node for node in graph_def.node if MADE in node.name]
    names = {node.name for node in graph_def.node} if nodes else set()
    for node in nodes:
        for op in _replaced_by(node.name, graph, names):
            for name in (KEEP, TO_FLOAT):
                if name in op.node_def.attr and name not in node.attr:
                    node.attr[name].CopyFrom(op.node_def.attr[name])


def as_asked(graph_def: Any, built: Mapping[str, str], chosen: Precision) -> Precision:
    """Returns options that ask of nodes what the user asked of the types that they were built with.

    Args:
        graph_def: tf.compat.v1.GraphDef of what a session runs; nodes of listed types get the attributes of scopes.
        built: name or `place` -> op of the nodes of the session's graph and of its functions, as the script built them.
        chosen: the options of the session.
    """
    changed = [(node, was) for node in graph_def.node for was in [_built_type(node, built)] if was != node.op]
    by_op = {} if chosen.customized is None else chosen.customized.by_op
    by_name = {} if chosen.customized is None else dict(chosen.customized.by_name)
    requests = {}
    for node, was in changed:
        entries = chosen.table.entries
        if was in entries and node.op != "Const" and _list_counts(entries[was], entries.get(node.op)):
            _ask(node, entries[was].listed, chosen.policy.low)
        if node.name in by_name or was in by_op or node.op in by_op:
            asked = by_name.get(node.name) or by_op.get(was, UNASKED)
            requests[node.name] = dataclasses.replace(asked, replaced=True)
    if not requests or chosen.customized is None:
        return chosen
    by_name.update(requests)
    return dataclasses.replace(chosen, customized=dataclasses.replace(chosen.customized, by_name=by_name))


def _built_type(node: Any, built: Mapping[str, str]) -> str:
    """The type that the script gave a node; of a node that TensorFlow made, the one that it has."""
    return built.get(node.name) or built.get(place(node.name), node.op)


def _list_counts(was: Entry, now: Entry | None) -> bool:
    """Whether the list of a node's old type is the user's word, or differs from its new type's, if that computes."""
    return was.asked or (now is not None and now.role == "computes" and now.listed != was.listed)


def _ask(node: Any, listed: str, low: int) -> None:
    if listed == "black" and KEEP not in node.attr:
        node.attr[KEEP].i = 1
    if listed == "white" and TO_FLOAT not in node.attr:
        node.attr[TO_FLOAT].type = low


def _replaced_by(name: str, graph: tf.Graph, names: set[str]) -> Iterator[tf.Operation]:
    """Yields the ops of a graph that a new node stands for: the one in its name first, then those in front of it."""
    first = _named_in(name, graph)
    return reached([] if first is None else [first], lambda op: [
        tensor.op for tensor in op.inputs if tensor.op.type in REPLACED and tensor.op.name not in names
    ])  # fmt: skip


def _named_in(name: str, graph: tf.Graph) -> tf.Operation | None:
    """Returns the op whose name is the longest end of a new node's: a/ArithmeticOptimizer/Stage_Leaf_0_add is a/add."""
    scope, _, end = name.rpartition(MADE)
    scope, parts = scope.replace(MADE, ""), end.split("_")
    for start in range(1, len(parts)):
        try:
            return graph.get_operation_by_name(scope + "_".join(parts[start:]))
        except KeyError:
            continue
    return None
