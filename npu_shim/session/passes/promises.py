"""What the passes of a session may change, for their promises in npu_shim/session/pipeline.py.

Most functions say of a node that differs which inserted nodes stand behind it and which nodes went into it
(rewriter/graphdef/promises.py); all other nodes, edges, attributes, devices and functions must be as before. A
violation is the session's InternalError and names the pass.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import call_fusion, signature
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graphdef.promises import Explained, Graphs, all_else_stays
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW
from npu_shim.session.observers import measures
from npu_shim.session.passes import arrivals, channels, kernel_names, onednn, rounding

INT32 = tf.int32.as_datatype_enum
_NOTHING_CHANGES = all_else_stays()


def renamed(before: Any, after: Any, run: Any) -> Iterator[str]:
    """What differs when every node has its old name again, which `run.moved` knows."""
    return _NOTHING_CHANGES(before, kernel_names.undone(after, run.moved), run)


def is_part_of_fused(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """A collective that has become its part of one over the inputs of several, laid end to end."""
    after = graphs.after
    scope = arguments.source_of(now.input[0])[: -len("/split")] if now.input else ""
    names = ["%s/%s" % (scope, part) for part in ("axis", "concat", "all", "sizes", "split")]
    if was.op != call_fusion.REDUCE or now.op != "Reshape" or now.device != was.device or len(now.input) != 2:
        return None
    if any(name not in after for name in names):
        return None
    axis, joined, whole, sizes, parts = (after[name] for name in names)
    at, count = arguments.output_of(now.input[0])[1], len(joined.input) - 1
    flat, shape = after.get("%s/in_%d" % (scope, at)), after.get("%s/shape_%d" % (scope, at))
    if flat is None or shape is None or "%s/in_%d/shape" % (scope, at) not in after:
        return None
    dims = [dim.size for dim in _attr(was, call_fusion.SHAPE).shape.dim]
    flat_shape = after["%s/in_%d/shape" % (scope, at)]
    kept = [name for name in was.attr if name not in (call_fusion.MARK, call_fusion.SHAPE, "instance_key")]
    right = (
        [parts.op, list(parts.input)] == ["SplitV", [whole.name, sizes.name, axis.name]]
        and [joined.op, list(joined.input)] == ["ConcatV2", [*_numbered(scope, "in", count), axis.name]]
        and [flat.op, list(flat.input)] == ["Reshape", [was.input[0], flat_shape.name]]
        and list(now.input) == [_output(parts.name, at), shape.name]
        and [whole.op, whole.input[0]] == [call_fusion.REDUCE, joined.name]
        and set(whole.input[1:]).issuperset(arguments.controls(was))
        and all(text in _waits(graphs, joined) for text in whole.input[1:])
        and {name: _bytes(_attr(was, name)) for name in kept}
        == {name: _bytes(value) for name, value in whole.attr.items() if name != "instance_key"}
        and (_value(axis), _value(flat_shape), _value(shape)) == (0, [-1], dims)
        and not any(node.input for node in (axis, sizes, flat_shape, shape))
        and len(_value(sizes)) == count == _attr(parts, "num_split").i
        and _value(sizes)[at] == int(np.prod(dims, dtype=int))
        and {node.device for node in (axis, joined, whole, sizes, parts, flat, flat_shape, shape)} == {was.device}
        and {_attr(node, "T").type for node in (now, joined, parts, flat)} == {_attr(was, "T").type}
    )
    own = {flat.name, flat_shape.name, shape.name}
    return Explained(frozenset(own.union(names))) if right else None


def _numbered(scope: str, name: str, count: int) -> list[str]:
    return ["%s/%s_%d" % (scope, name, number) for number in range(count)]


def _output(name: str, number: int) -> str:
    return "%s:%d" % (name, number) if number else name


def _waits(graphs: Graphs, joined: Any) -> set[str]:
    """What the collectives waited for that are laid end to end."""
    split = joined.name[: -len("concat")] + "split"
    members = [now.name for now in graphs.after.values() if now.input and arguments.source_of(now.input[0]) == split]
    return {text for name in members if name in graphs.before for text in arguments.controls(graphs.before[name])}


def _value(node: Any) -> Any:
    return tf.make_ndarray(_attr(node, "value").tensor).tolist() if node.op == "Const" else None


def is_measure(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """The last of the ordinary ops that measure a tensor, replaced by one op."""
    if measures.MARK not in was.attr or now.op != measures.OP or now.device != was.device or now.attr:
        return None
    source, inside = measures.measured(was, graphs.before)
    return Explained(removed=frozenset(inside)) if list(now.input) == [source, *arguments.controls(was)] else None


def is_rounding(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """A Cast up of a Cast down, replaced by one op that rounds."""
    down = graphs.before.get(was.input[0]) if was.op == "Cast" else None
    if down is None or down.op != "Cast" or now.op != rounding.OP or now.device != was.device:
        return None
    dtypes = [_attr(node, name).type for node in (down, was) for name in ("SrcT", "DstT")]
    low = _attr(down, "DstT").type
    inputs = list(dict.fromkeys([*down.input, *was.input[1:]]))
    marks = {name: _bytes(value) for name, value in was.attr.items() if name[0] == "_"}
    right = (
        low in LOW
        and dtypes == [FLOAT32, low, low, FLOAT32]
        and not (_attr(down, "Truncate").b or _attr(was, "Truncate").b)
        and list(now.input) == inputs
        and _attr(now, "to").type == low
        and marks == {name: _bytes(value) for name, value in now.attr.items() if name != "to"}
    )
    return Explained(removed=frozenset({down.name})) if right else None


def is_arrival(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """A collective whose first input, and what it waits for, goes through the op that notes when it has come."""
    note = graphs.after.get(was.name + "/npu_shim_arrive")
    if note is None or note.name in graphs.before or (was.op, was.device) != (now.op, now.device):
        return None
    first, *rest = arguments.data(was)
    constants = {name: node for name, node in graphs.before.items() if node.op == "Const"}
    plain = {name: _bytes(value) for name, value in was.attr.items()}
    right = (
        (note.op, note.device, list(note.input)) == (arrivals.OP, was.device, [first, *arguments.controls(was)])
        and list(now.input) == [note.name + graphs.output, *rest]
        and plain == {name: _bytes(value) for name, value in now.attr.items()}
        and set(note.attr) == {"T", "key"}
        and _attr(note, "T").type == _attr(was, "T").type
        and _attr(note, "key").i == signature.instance_of(was, constants)
    )
    return Explained(frozenset({note.name})) if right else None


def is_channels_last(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """An op of images that computes channels last, between Transposes."""
    converted = channels.CONVERTED.get(was.op) if _attr(was, "data_format").s in channels.LAST else None
    node = now if converted is None or not converted.gives else graphs.after.get(was.name + "/channels_last")
    if converted is None or node is None or (node.op, node.device) != (was.op, was.device):
        return None
    to, scope = [0, *range(2, len(_attr(was, "data_format").s)), 1], was.name + "/channels_last_"
    inserted, inputs = [node.name] if converted.gives else [], list(was.input)
    moves = [("image_%d" % k, "Transpose", k) for k in converted.images] + [
        ("shape_%d" % k, "Gather", k) for k in converted.shapes
    ]
    for name, op, k in moves:
        inputs[k] = scope + name + (graphs.output if op == "Transpose" else graphs.output and ":output:0")
        inserted += [scope + name, scope + name + "_axes"]
        if not _moves_axes(graphs, was, scope + name, op, was.input[k], to):
            return None
    right = list(node.input) == inputs and _attributes(node) == _attributes(_channels_last(was, to))
    if converted.gives:
        back = scope + "back"
        inserted += [back, back + "_axes"]
        source = node.name + (graphs.output and ":output:0")
        right = right and _moves_axes(graphs, was, back, "Transpose", source, np.argsort(to).tolist())
        marks = {name: value for name, value in _attributes(was).items() if name[0] == "_" or name == "T"}
        right = right and (now.op, now.device, list(now.input)) == ("Identity", was.device, [back + graphs.output])
        right = right and _attributes(now) == marks
    return Explained(frozenset(inserted)) if right else None


def _moves_axes(graphs: Graphs, was: Any, name: str, op: str, source: str, axes: list[int]) -> bool:
    """Whether an inserted op brings the axes of a tensor, or of its shape, into an order."""
    node, order = graphs.after.get(name), graphs.after.get(name + "_axes")
    if node is None or order is None or {node.name, order.name} & set(graphs.before):
        return False
    waits = [] if graphs.output else ["^" + arguments.source_of(was.input[0])]
    kind = ("T", _attr(was, "T").type) if op == "Transpose" else ("Tparams", _attr(was, "Tshape").type or INT32)
    return (
        (node.op, list(node.input)) == (op, [source, order.name + (graphs.output and ":output:0")])
        and (_value(order), list(order.input)) == (axes, waits)
        and node.device == order.device == was.device
        and (_attr(node, kind[0]).type or INT32) == kind[1]
    )


def _channels_last(node: Any, to: list[int]) -> Any:
    """A node with its attributes in the order of channels last."""
    converted = type(node)()
    converted.CopyFrom(node)
    converted.attr["data_format"].s = channels.LAST[node.attr["data_format"].s]
    for name in set(channels.BY_AXIS).intersection(node.attr):
        converted.attr[name].list.i[:] = [node.attr[name].list.i[axis] for axis in to]
    pads = list(_attr(node, channels.PADDINGS).list.i) if channels.PADDINGS in node.attr else []
    if pads:
        converted.attr[channels.PADDINGS].list.i[:] = [pads[2 * axis + side] for axis in to for side in (0, 1)]
    return converted


def is_named_kernel(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """A convolution by the name of oneDNN's kernel."""
    if was.op not in onednn.GRADIENTS | onednn.DILATED or (now.op, now.device) != (onednn.PREFIX + was.op, was.device):
        return None
    label = tf.AttrValue(s=onednn.LABEL)
    right = list(now.input) == list(was.input) and _attributes(now) == {**_attributes(was), "_kernel": _bytes(label)}
    return Explained() if right else None


def _attr(node: Any, name: str) -> Any:
    """An attribute of a node, empty if it is not there: asking for it by index would add it."""
    return node.attr.get(name, tf.AttrValue())


def _attributes(node: Any) -> dict[str, bytes]:
    return {name: _bytes(value) for name, value in node.attr.items()}


def _bytes(value: Any) -> bytes:
    return bytes(value.SerializeToString(deterministic=True))
