"""Attributes of nodes as Python values, and their AttrValue protos. No TensorFlow.

    AttrValue    type   shape  tensor  func      s      i    f      b     list   placeholder  (empty)
    here         DType  Shape  Tensor  Callee    bytes  int  float  bool  tuple  Unbound      None

The Python type says which field it came from, so that what is read can be written again without the op's definition.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Iterator, NamedTuple

from ..tables import dtypes

# dtype -> (field of a TensorProto with one entry an element, format of an element in its tensor_content)
STORAGE: dict[int, tuple[str, str]] = {
    dtypes.NUMBERS[name]: (field, code)
    for name, field, code in (
        ("float32", "float_val", "f"), ("float64", "double_val", "d"), ("int32", "int_val", "i"),
        ("uint8", "int_val", "B"), ("int16", "int_val", "h"), ("int8", "int_val", "b"), ("uint16", "int_val", "H"),
        ("int64", "int64_val", "q"), ("bool", "bool_val", "?"), ("uint32", "uint32_val", "I"),
        ("uint64", "uint64_val", "Q"), ("float16", "half_val", "H"), ("bfloat16", "half_val", "H"),
    )
}  # fmt: skip
LOW_BITS = {dtypes.FLOAT16: ("<H", "<e", 0), dtypes.BFLOAT16: ("<I", "<f", 16)}  # stored as the number of their bits

_GONE = object()  # an attribute that has been removed


class DType(int):
    """A dtype's number in TensorFlow's DataType."""

    __slots__ = ()

    def __repr__(self) -> str:
        return dtypes.name(self)


class Shape(NamedTuple):
    """Sizes of dimensions, -1 for one that is open; `dims` is None for an unknown rank."""

    dims: tuple[int, ...] | None


class Callee(NamedTuple):
    """A function of the library, and the attributes that it is called with."""

    name: str
    attributes: tuple[tuple[str, Any], ...] = ()


class Unbound(NamedTuple):
    """An attribute of a node in a function's body that takes its value from the call."""

    name: str


class Tensor:
    """A constant: read from a TensorProto, which then is `proto`, or made of numbers.

    Attributes:
        dtype: DType.
        dims: sizes of its dimensions.
        proto: the TensorProto; None for one made of numbers.
    """

    __slots__ = ("_numbers", "dims", "dtype", "proto")

    def __init__(self, dtype: int, dims: tuple[int, ...], numbers: tuple[Any, ...] | None = None, proto: Any = None):
        self.dtype, self.dims, self.proto, self._numbers = DType(dtype), dims, proto, numbers

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for dim in self.dims:
            size *= dim
        return size

    def numbers(self) -> tuple[Any, ...] | None:
        """The elements in row-major order, numbers or bools; None for a dtype that is neither."""
        if self._numbers is None and self.dtype in STORAGE:
            self._numbers = _numbers(self.proto, self.dtype, self.size)
        return self._numbers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tensor):
            return NotImplemented
        same = (self.dtype, self.dims) == (other.dtype, other.dims)
        return same and (self.proto == other.proto if self.dtype not in STORAGE else self.numbers() == other.numbers())

    def __hash__(self) -> int:
        return hash((self.dtype, self.dims))

    def __repr__(self) -> str:
        return "Tensor(%r, %r, %r)" % (self.dtype, self.dims, self.numbers())


def _numbers(proto: Any, dtype: int, size: int) -> tuple[Any, ...]:
    field, code = STORAGE[dtype]
    if proto.tensor_content:
        stored = struct.unpack("<%d%s" % (size, code), proto.tensor_content)
    else:
        stored = tuple(getattr(proto, field)) or (0,) * size
        stored += stored[-1:] * (size - len(stored))  # the last one stands for all that follow
    if dtype not in LOW_BITS:
        return tuple(map(bool, stored)) if code == "?" else stored
    bits, floats, shift = LOW_BITS[dtype]
    return tuple(struct.unpack(floats, struct.pack(bits, number << shift))[0] for number in stored)


def decoded(message: Any) -> Any:
    """The Python value of an AttrValue."""
    field = message.WhichOneof("value")
    return None if field is None else DECODERS[field](getattr(message, field))


def _decoded_shape(message: Any) -> Shape:
    return Shape(None if message.unknown_rank else tuple([dim.size for dim in message.dim]))


def _decoded_tensor(message: Any) -> Tensor:
    return Tensor(message.dtype, tuple([dim.size for dim in message.tensor_shape.dim]), proto=message)


def _decoded_callee(message: Any) -> Callee:
    return Callee(message.name, tuple((name, decoded(message.attr[name])) for name in sorted(message.attr)))


def _decoded_list(message: Any) -> tuple[Any, ...]:
    for descriptor, entries in message.ListFields():
        return tuple(map(DECODERS[descriptor.name], entries))
    return ()


DECODERS: dict[str, Callable[[Any], Any]] = {
    "type": DType, "shape": _decoded_shape, "tensor": _decoded_tensor, "func": _decoded_callee, "s": bytes, "i": int,
    "f": float, "b": bool, "list": _decoded_list, "placeholder": Unbound,
}  # fmt: skip


def encode(value: Any, message: Any) -> None:
    """Writes the Python value of an attribute into an AttrValue, which is empty before.

    Raises:
        TypeError: the value is of none of the types above.
    """
    if value is None:
        return
    if isinstance(value, tuple) and type(value) is tuple:
        message.list.SetInParent()
        for entry in value:
            field = _field(entry)
            _append(getattr(message.list, field), field, entry)
        return
    field = _field(value)
    if field in ENCODERS:
        getattr(message, field).SetInParent()
        ENCODERS[field](value, getattr(message, field))
    else:
        setattr(message, field, value.name if field == "placeholder" else value)


def _append(entries: Any, field: str, value: Any) -> None:
    if field in ENCODERS:
        ENCODERS[field](value, entries.add())
    else:
        entries.append(value)


def _field(value: Any) -> str:
    """The field of an AttrValue that a value stands in."""
    for kind, field in FIELDS:
        if isinstance(value, kind):
            return field
    kinds = ", ".join(kind.__name__ for kind, _ in FIELDS)
    raise TypeError("an attribute is %r, expected one of %s" % (value, kinds))


# in this order: a bool and a DType are ints
FIELDS = (
    (bool, "b"), (DType, "type"), (int, "i"), (float, "f"), (bytes, "s"), (Shape, "shape"), (Tensor, "tensor"),
    (Callee, "func"), (Unbound, "placeholder"),
)  # fmt: skip


def _encode_shape(value: Shape, message: Any) -> None:
    message.unknown_rank = value.dims is None
    for size in value.dims or ():
        message.dim.add().size = size


def _encode_tensor(value: Tensor, message: Any) -> None:
    if value.proto is not None:
        message.CopyFrom(value.proto)
        return
    message.dtype = value.dtype
    _encode_shape(Shape(value.dims), message.tensor_shape)
    field, _ = STORAGE[value.dtype]
    numbers = value.numbers() or ()
    if value.dtype in LOW_BITS:
        bits, floats, shift = LOW_BITS[value.dtype]
        numbers = tuple(struct.unpack(bits, struct.pack(floats, number))[0] >> shift for number in numbers)
    getattr(message, field).extend(numbers)


def _encode_callee(value: Callee, message: Any) -> None:
    message.name = value.name
    for name, attribute in value.attributes:
        encode(attribute, message.attr[name])


ENCODERS: dict[str, Callable[[Any, Any], None]] = {
    "shape": _encode_shape,
    "tensor": _encode_tensor,
    "func": _encode_callee,
}


class Attributes:
    """The attributes of a node: name -> Python value (attributes.py), decoded when they are asked for."""

    __slots__ = ("_changed", "_node", "_proto", "_read")

    def __init__(self, node: Any, proto: Any) -> None:
        self._node, self._proto = node, proto.attr if proto is not None else {}
        self._read: dict[str, Any] = {}
        self._changed: dict[str, Any] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, `default` where the node names none."""
        value = self._read.get(name, _GONE)
        if value is _GONE:
            if name in self._changed or name not in self._proto:  # protos make what they are asked for
                return default
            value = self._read[name] = decoded(self._proto[name])
        return value

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, _GONE)
        if value is _GONE:
            raise KeyError("node '%s' (%s) has no attribute %s" % (self._node.name, self._node.op, name))
        return value

    def __contains__(self, name: str) -> bool:
        return self._changed[name] is not _GONE if name in self._changed else name in self._proto

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        if not self._changed:
            return iter(sorted(self._proto))
        return iter(sorted(name for name in {*self._proto, *self._changed} if name in self))

    def __setitem__(self, name: str, value: Any) -> None:
        self._read[name] = self._changed[name] = value
        self._node.touch_attribute(name)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._read.pop(name, None)
        self._changed[name] = _GONE
        self._node.touch_attribute(name)

    def items(self) -> list[tuple[str, Any]]:
        """(name, value), sorted by name."""
        return [(name, self[name]) for name in self]

    @property
    def are_changed(self) -> bool:
        """Whether one has been set or removed."""
        return bool(self._changed)

    def changes(self) -> tuple[dict[str, Any], list[str]]:
        """What was set, name -> value, and the names of what was removed."""
        changed = {name: value for name, value in self._changed.items() if value is not _GONE}
        return changed, [name for name, value in self._changed.items() if value is _GONE]
