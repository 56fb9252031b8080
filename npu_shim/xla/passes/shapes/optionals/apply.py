"""Rewrites a graph and its functions so that tensors hold values in place of Optionals."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Function
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.xla.passes.shapes.optionals.payloads import LIST_OPS, OPTIONALS, Payloads, Slot, TensorType

BOOL, INT32, UINT8 = (DType(NUMBERS[name]) for name in ("bool", "int32", "uint8"))
SHAPES = ("output_shapes", "_output_shapes")  # attributes that repeat what follows from the inputs
ELEMENT_SHAPES = {"EmptyTensorList": 0, "TensorListPopBack": 1}  # op -> the number of the input that says it


def apply(graphs: Iterable[Graph], payloads: Payloads) -> None:
    """Replaces the Optionals of a graph and of function bodies by what `payloads.find` returned."""
    dtypes = {value: held.number for (value, depth), held in payloads.slots.items() if depth == 0}
    for graph in graphs:
        for node in graph:
            if node.op in OPTIONALS:
                _rewrite_optional(node, payloads)
            elif calls.kind(node) is not None:
                _retype_call(node, dtypes)
            elif node.op in LIST_OPS:
                _retype_list(node, payloads.slots)
            elif node.value in dtypes and "T" in node.attrs:  # what only forwards
                node.attrs["T"] = dtypes[node.value]
        if isinstance(graph, Function):
            graph.retype(dtypes)


def _rewrite_optional(node: Node, payloads: Payloads) -> None:
    takes = node.op == "OptionalGetValue"
    held = payloads.slots[node.inputs[0] if takes else node.value, 0]
    own = payloads.own.get(node, held)  # an Optional in an Optional holds the same
    if node.op == "OptionalNone":
        _fill(node, held)
    elif own == held:
        node.forward(node.inputs[0], held.number)
    elif takes:
        _unpack(node, own)
    else:
        _pack(node, own, held)


def _fill(node: Node, held: TensorType) -> None:
    """Makes an OptionalNone zeros."""
    dims = _constant(node, "dims", INT32, held.dims)
    zero = _constant(node, "zero", held.number, (0,), ())
    node.turn_into("Fill", [dims, zero], {"T": held.number, "index_type": INT32})


def _pack(node: Node, own: TensorType, held: TensorType) -> None:
    """Has an OptionalFromValue put a value's bytes into the beginning of what is held."""
    stored = _stored(own)
    size = _constant(node, "size", INT32, (own.bytes,))
    rest = _constant(node, "rest", INT32, (0, held.bytes - own.bytes), (1, 2))
    cast = _add(node, "cast", "Cast", node.inputs[0], SrcT=own.number, DstT=stored)
    bits = _add(node, "bits", "Bitcast", cast, T=stored, type=UINT8)
    flat = _add(node, "flat", "Reshape", bits, size, T=UINT8, Tshape=INT32)
    node.turn_into("Pad", [flat, rest], {"T": UINT8, "Tpaddings": INT32})


def _unpack(node: Node, own: TensorType) -> None:
    """Has an OptionalGetValue take a value from the beginning of bytes."""
    stored, width = _stored(own), own.dtype.size
    begin = _constant(node, "begin", INT32, (0,))
    size = _constant(node, "size", INT32, (own.bytes,))
    shape = _constant(node, "shape", INT32, (*own.dims, width) if width > 1 else own.dims)
    part = _add(node, "part", "Slice", node.inputs[0], begin, size, T=UINT8, Index=INT32)
    shaped = _add(node, "shaped", "Reshape", part, shape, T=UINT8, Tshape=INT32)
    bits = _add(node, "bits", "Bitcast", shaped, T=UINT8, type=stored)
    node.turn_into("Cast", [bits], {"SrcT": stored, "DstT": own.number})


def _stored(own: TensorType) -> DType:
    """The dtype whose bytes stand for a value."""
    return UINT8 if own.number == BOOL else own.number


def _constant(node: Node, name: str, dtype: DType, numbers: tuple[int, ...], dims: Any = None) -> Value:
    """A constant before a node, of rank 1 if no `dims` are given."""
    value = Tensor(dtype, (len(numbers),) if dims is None else dims, numbers)
    return _add(node, name, "Const", value=value, dtype=dtype)


def _add(node: Node, name: str, op: str, *inputs: Value, **attrs: Any) -> Value:
    """The first output of a new node before another, whose name begins with that one's."""
    return node.graph.add("%s/npu_shim_%s" % (node.name, name), op, inputs, attrs=attrs, origin=node, before=node).value


def _retype_call(node: Node, dtypes: Mapping[Value, DType]) -> None:
    """Gives a call's inputs and outputs the dtypes of the values."""
    for name in ("Tin", "Tout", "T"):
        types = node.attrs.get(name)
        if type(types) is tuple:
            values = calls.given(node) if name != "Tout" else [node.output(port) for port in range(len(types))]
            retyped = tuple(dtypes.get(value, dtype) for value, dtype in zip(values, types))
            if retyped != types:
                node.attrs[name] = retyped
    for name in SHAPES:
        if name in node.attrs:
            del node.attrs[name]


def _retype_list(node: Node, slots: Mapping[Slot, TensorType]) -> None:
    """Makes the elements of a list values; an empty list is told their shape."""
    held = slots.get((node.value if node.op == "EmptyTensorList" else node.inputs[0], 1))
    if held is None or "element_dtype" not in node.attrs:
        return
    node.attrs["element_dtype"] = held.number
    if node.op in ELEMENT_SHAPES:
        node.set_input(ELEMENT_SHAPES[node.op], _constant(node, "shape", INT32, held.dims))
    if node.op == "EmptyTensorList":
        node.attrs["shape_type"] = INT32
