"""Writes a plan into a copy of its graph. It decides nothing."""

import operator
from typing import Any, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.emulation import ROUNDED
from ..graph.graph_view import KEEP, MOVED, Port
from ..planner.decisions import Plan
from ..tables.dtypes import LOW
from ..tf_internals import forget_full_type
from . import constants


class Applied(NamedTuple):
    """A rewritten graph: the nodes of the original in their order, then the added ones.

    Attributes:
        graph_def: a tf.compat.v1.GraphDef.
        touched: positions of the nodes that differ from the original, sorted; added nodes not counted.
    """

    graph_def: "tf.GraphDef"
    touched: Tuple[int, ...]


def apply(plan: Plan, graph_def: Any) -> Applied:
    """Applies a plan that changes at least one node.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef; it is not changed.

    Returns:
        Applied.
    """
    view = plan.view
    rewritten = tf.GraphDef()
    rewritten.CopyFrom(graph_def)
    protos = rewritten.node
    changed = plan.changed_nodes()
    for position, becomes in changed.items():
        _set_dtypes(protos[position], view.nodes[position], becomes)
    touched = set(changed)
    names = [node.name for node in view.nodes]
    touched |= _rename(plan.edits.boundaries, view, names, protos)
    for cast in plan.casts:
        for position, number in cast.consumers:
            protos[position].input[number] = cast.name
            touched.add(position)
    for (position, number), port in plan.edits.reconnections.items():
        protos[position].input[number] = _tensor(names, port)
        touched.add(position)
    protos.extend(_constant(cast, view, protos, names) if cast.folded else _cast(cast, names) for cast in plan.casts)
    protos.extend(_restored(b, view.nodes, names) for b in plan.edits.boundaries if len(b.casts) > 1)
    touched |= _mark_rounding(plan, protos)
    _mark_moved(plan, protos)
    return Applied(rewritten, tuple(sorted(touched)))


def _mark_rounding(plan, protos):
    """Marks the nodes that run in float32 for a low dtype, and the casts around them, with that dtype.

    Returns:
        Set of the positions of the nodes.
    """
    ways = plan.running.ways
    for position in ways:
        slots = range(plan.first[position], plan.first[position] + len(plan.view.nodes[position].dtypes))
        protos[position].attr[ROUNDED].type = next(plan.becomes[slot] for slot in slots if plan.becomes[slot] in LOW)
    behind = {cast.source for cast in plan.casts}
    for cast, proto in zip(plan.casts, protos[len(plan.view.nodes) :] if ways else ()):
        pair = cast.name in behind or isinstance(cast.source, str)
        if pair or cast.source.node in ways or any(position in ways for position, _ in cast.consumers):
            proto.attr[ROUNDED].type = cast.dtype if cast.dtype in LOW else cast.source_dtype
    return set(ways)


def _mark_moved(plan, protos):
    """Marks the nodes that casts were moved across, so that another rewrite treats their results as neutral."""
    for position in plan.moved_nodes():
        protos[position].attr[MOVED].b = True


def sort_nodes(graph_def: Any) -> None:
    """Sorts the nodes of a GraphDef by name, in place, so that equal graphs have equal bytes."""
    graph_def.node.sort(key=operator.attrgetter("name"))


def _set_dtypes(proto, node, becomes):
    """Sets the changed type attributes, and the op's newer form where it has one.

    It clears the full-type annotation; TensorFlow re-infers it (1.15 has none).
    """
    proto.op = node.layout.op
    for slot, was, dtype in zip(node.layout.slots, node.dtypes, becomes):
        if slot.index is not None:
            proto.attr[slot.attr].list.type[slot.index] = dtype
        elif dtype != was or slot.attr not in proto.attr:
            proto.attr[slot.attr].type = dtype
    forget_full_type(proto, "experimental_type")


def _rename(boundaries, view, names, protos):
    """Renames nodes and rewires their consumers; returns the positions of all of these.

    Consumers that want the old dtype are rewired to the restoring cast afterwards.
    """
    moved = {boundary.node: boundary.renamed for boundary in boundaries}
    touched = set(moved)
    for position, name in moved.items():
        names[position] = protos[position].name = name
    if moved:
        for position, node in enumerate(view.nodes):
            for number, port in enumerate(node.inputs):
                if port.node in moved:
                    protos[position].input[number] = _tensor(names, port)
                    touched.add(position)
    return touched


def _restored(boundary, nodes, names):
    """The node that restores the old name and dtypes of a renamed node's outputs."""
    node = nodes[boundary.node]
    outputs = [
        cast if cast is not None else _tensor(names, Port(boundary.node, number))
        for number, cast in enumerate(boundary.casts)
    ]
    proto = tf.NodeDef(name=node.name, op="IdentityN", device=node.device, input=outputs)
    proto.attr["T"].list.type.extend(node.output_dtype(number) for number in range(len(outputs)))
    proto.attr[KEEP].i = 1  # or another rewrite would lower it again
    return proto


def _tensor(names, port):
    return names[port.node] if port.port == 0 else "%s:%d" % (names[port.node], port.port)


def _constant(cast, view, protos, names):
    """The Const that replaces the cast of a known value."""
    inputs = sorted("^" + names[position] for position in folding.controls(view, cast.source))
    proto = tf.NodeDef(name=cast.name, op="Const", device=cast.device, input=inputs)
    proto.attr["dtype"].type = cast.dtype
    constants.write(view, protos, cast, proto.attr["value"].tensor)
    return proto


def _cast(cast, names):
    source = cast.source if isinstance(cast.source, str) else _tensor(names, cast.source)
    waits = sorted("^" + names[position] for position in cast.before)
    proto = tf.NodeDef(name=cast.name, op="Cast", device=cast.device, input=[source, *waits])
    proto.attr["SrcT"].type = cast.source_dtype
    proto.attr["DstT"].type = cast.dtype
    proto.attr["Truncate"].b = False
    return proto
