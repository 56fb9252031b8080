"""Writes a plan into a copy of its graph. It decides nothing."""

import tensorflow.compat.v1 as tf

from .graph_view import Port


def apply(plan, graph_def):
    """Returns the rewritten graph.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef; it is not changed. Where the plan changes nothing, it is returned itself.

    Returns:
        A GraphDef whose nodes are ordered by name, so that the same graph gives the same bytes whatever its nodes'
        order was.
    """
    if not plan.changed:
        return graph_def
    nodes = plan.view.nodes
    protos = [tf.NodeDef.FromString(proto.SerializeToString()) for proto in graph_def.node]
    for position, (node, proto) in enumerate(zip(nodes, protos)):
        if node.dtypes:
            _set_dtypes(proto, node, plan.becomes[plan.first[position] : plan.first[position] + len(node.dtypes)])
    names = [node.name for node in nodes]
    for boundary in plan.edits.boundaries:
        _rename(boundary, nodes, names, protos)
    for cast in plan.casts:
        for position, number in cast.consumers:
            protos[position].input[number] = cast.name
    for (position, number), port in plan.edits.reconnections.items():
        protos[position].input[number] = _tensor(names, port)
    added = [_cast(cast, names) for cast in plan.casts]
    added += [_restored(boundary, nodes, names) for boundary in plan.edits.boundaries if len(boundary.casts) > 1]
    rewritten = tf.GraphDef(versions=graph_def.versions)
    rewritten.library.CopyFrom(graph_def.library)
    rewritten.node.extend(sorted(protos + added, key=lambda proto: proto.name))
    return rewritten


def _set_dtypes(proto, node, becomes):
    """Sets the changed type attributes, and the op's newer form where it has one and is changed."""
    if tuple(becomes) == node.dtypes:
        return
    proto.op = node.layout.op
    for slot, was, dtype in zip(node.layout.slots, node.dtypes, becomes):
        if slot.index is not None:
            proto.attr[slot.attr].list.type[slot.index] = dtype
        elif dtype != was or slot.attr not in proto.attr:
            proto.attr[slot.attr].type = dtype


def _rename(boundary, nodes, names, protos):
    """Moves a node to its new name; its consumers follow (those that want the old dtype are rewired by their cast)."""
    names[boundary.node] = protos[boundary.node].name = boundary.renamed
    for node, proto in zip(nodes, protos):
        for number, port in enumerate(node.inputs):
            if port.node == boundary.node:
                proto.input[number] = _tensor(names, port)


def _restored(boundary, nodes, names):
    """The node that gives all outputs of a renamed node their old name and dtypes."""
    node = nodes[boundary.node]
    outputs = [
        cast if cast is not None else _tensor(names, Port(boundary.node, number))
        for number, cast in enumerate(boundary.casts)
    ]
    proto = tf.NodeDef(name=node.name, op="IdentityN", device=node.device, input=outputs)
    proto.attr["T"].list.type.extend(node.output_dtype(number) for number in range(len(outputs)))
    return proto


def _tensor(names, port):
    return names[port.node] if port.port == 0 else "%s:%d" % (names[port.node], port.port)


def _cast(cast, names):
    source = cast.source if isinstance(cast.source, str) else _tensor(names, cast.source)
    proto = tf.NodeDef(name=cast.name, op="Cast", device=cast.device, input=[source])
    proto.attr["SrcT"].type = cast.source_dtype
    proto.attr["DstT"].type = cast.dtype
    proto.attr["Truncate"].b = False
    return proto
