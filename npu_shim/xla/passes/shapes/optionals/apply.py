"""Rewrites a graph and its functions so that tensors hold values in place of Optionals."""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import controls, data
from npu_shim.rewriter.graphdef import functions
from npu_shim.xla.passes.shapes import flat_bodies
from npu_shim.xla.passes.shapes.optionals.places import Found, element, slot_of
from npu_shim.xla.passes.shapes.optionals.views import GRAPH, View, called_by_name

INT32, UINT8 = tf.int32.as_datatype_enum, tf.uint8.as_datatype_enum
SHAPES = ("output_shapes", "_output_shapes")  # attributes that repeat what follows from the inputs


def apply(graph_def: Any, views: Mapping[str, View], values: Found) -> Any:
    """Returns a GraphDef without Optionals.

    Args:
        graph_def: the graph.
        views: the graph and its functions.
        values: what `places.find` returned.
    """
    library = dict.fromkeys(name for name in views if name != GRAPH)
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    told, defined = called_by_name(graph_def), {function.signature.name: function for function in copy.library.function}
    for name, view in views.items():
        flat = tf.GraphDef(versions=graph_def.versions, library=told)
        for node in view.graph_def.node:
            flat.node.extend(_rewritten(name, node, library, values))
        if name == GRAPH:
            del copy.node[:]
            copy.node.extend(flat.node)
            continue
        function = defined[name]
        function.CopyFrom(flat_bodies.as_function(function, flat))
        texts = [*view.arguments, *view.results]
        for argument, text in zip([*function.signature.input_arg, *function.signature.output_arg], texts):
            held = values.places.get(slot_of(name, text))
            if held is not None:
                argument.CopyFrom(type(argument)(name=argument.name, type=_number(held)))
        function.arg_attr.clear()
    return copy


def _rewritten(name, node, library, values):
    """The nodes that replace one node."""
    own, inside = values.places.get(slot_of(name, node.name)), values.inside.get(slot_of(name, node.name))
    copy = tf.NodeDef()
    copy.CopyFrom(node)
    if node.op == "OptionalNone":
        return _zeros(copy, own)
    if node.op == "OptionalFromValue":
        return [_identity(copy, own)] if inside in (None, own) else _packed(copy, inside, own)
    if node.op == "OptionalGetValue":
        place = values.places[slot_of(name, node.input[0])]
        return [_identity(copy, place)] if inside in (None, place) else _unpacked(copy, inside)
    kind = functions.kind_of(node, library)
    if kind is not None:
        _retype_call(name, copy, kind, values.places)
    elif "TensorList" in node.op:
        return _list(name, copy, values.places)
    elif own is not None and "T" in node.attr:  # what only forwards
        copy.attr["T"].type = _number(own)
        copy.ClearField("experimental_type")
    return [copy]


def _identity(node, held):
    return _as(node, "Identity", list(node.input), T=_number(held))


def _as(node, op, inputs, **types):
    """Makes a node one of another op."""
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    node.attr.clear()
    node.ClearField("experimental_type")
    for key, dtype in types.items():
        node.attr[key].type = dtype
    return node


def _zeros(node, held):
    dims = _constant(node.name + "/npu_shim_dims", tf.make_tensor_proto(held.shape.as_list(), tf.int32))
    zero = _constant(node.name + "/npu_shim_zero", tf.make_tensor_proto(held.dtype.as_numpy_dtype(0), held.dtype))
    filled = _as(node, "Fill", [dims.name, zero.name, *node.input], T=_number(held), index_type=INT32)
    return [dims, zero, filled]


def _packed(node, value, place):
    """Puts a value's bytes into the beginning of a place."""
    scope, taken, waits = node.name + "/npu_shim_", data(node)[0], controls(node)
    size = _constant(scope + "size", tf.make_tensor_proto([value.bytes], tf.int32))
    rest = _constant(scope + "rest", tf.make_tensor_proto([[0, place.bytes - value.bytes]], tf.int32))
    stored = _stored(value).as_datatype_enum
    cast = _as(tf.NodeDef(name=scope + "cast"), "Cast", [taken], SrcT=_number(value), DstT=stored)
    bits = _as(tf.NodeDef(name=scope + "bits"), "Bitcast", [cast.name], T=stored, type=UINT8)
    flat = _as(tf.NodeDef(name=scope + "flat"), "Reshape", [bits.name, size.name], T=UINT8, Tshape=INT32)
    return [size, rest, cast, bits, flat, _as(node, "Pad", [flat.name, rest.name, *waits], T=UINT8, Tpaddings=INT32)]


def _unpacked(node, value):
    """Takes a value from the beginning of a place of bytes."""
    scope, taken, waits = node.name + "/npu_shim_", data(node)[0], controls(node)
    stored = _stored(value)
    dims = [*value.shape.as_list(), *([stored.size] if stored.size > 1 else [])]
    begin = _constant(scope + "begin", tf.make_tensor_proto([0], tf.int32))
    size = _constant(scope + "size", tf.make_tensor_proto([value.bytes], tf.int32))
    shape = _constant(scope + "shape", tf.make_tensor_proto(dims, tf.int32))
    part = _as(tf.NodeDef(name=scope + "part"), "Slice", [taken, begin.name, size.name], T=UINT8, Index=INT32)
    flat = _as(tf.NodeDef(name=scope + "shaped"), "Reshape", [part.name, shape.name], T=UINT8, Tshape=INT32)
    bits = _as(tf.NodeDef(name=scope + "bits"), "Bitcast", [flat.name], T=UINT8, type=stored.as_datatype_enum)
    cast = _as(node, "Cast", [bits.name, *waits], SrcT=stored.as_datatype_enum, DstT=_number(value))
    return [begin, size, shape, part, flat, bits, cast]


def _stored(value):
    """The dtype whose bytes stand for a value."""
    return tf.uint8 if value.dtype == tf.bool else value.dtype


def _constant(name, tensor):
    node = tf.NodeDef(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tensor)
    node.attr["dtype"].type = tensor.dtype
    return node


def _retype_call(name, node, kind, values):
    """Gives a call's inputs and outputs the dtypes of the values."""
    taken = [values.get(slot_of(name, text)) for text in data(node)]
    for attr in ("Tin", "Tout", "T"):
        types = node.attr[attr].list.type if attr in node.attr else ()
        held = taken[1:] if kind == functions.BRANCH else taken
        if attr == "Tout":
            held = [values.get(slot_of(name, "%s:%d" % (node.name, port))) for port in range(len(types))]
        for number, value in enumerate(held[: len(types)]):
            if value is not None:
                types[number] = _number(value)
    for attr in SHAPES:
        if attr in node.attr:
            del node.attr[attr]
    node.ClearField("experimental_type")


def _list(name, node, values):
    """A list op whose elements are values; an empty list is told their shape."""
    handle = slot_of(name, node.name if node.op == "EmptyTensorList" else node.input[0])
    held = values.get(element(handle))
    if held is None or "element_dtype" not in node.attr:
        return [node]
    node.attr["element_dtype"].type = _number(held)
    node.ClearField("experimental_type")
    at = {"EmptyTensorList": 0, "TensorListPopBack": 1}.get(node.op)
    if at is None:
        return [node]
    shape = _constant(node.name + "/npu_shim_shape", tf.make_tensor_proto(held.shape.as_list(), tf.int32))
    node.input[at] = shape.name
    if node.op == "EmptyTensorList":
        node.attr["shape_type"].type = INT32
    return [shape, node]


def _number(held):
    return held.dtype.as_datatype_enum
