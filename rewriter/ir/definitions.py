"""What an op's definition says: its inputs, outputs and attributes. TensorFlow is asked for it, when one is needed."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

from .. import tf_internals
from .attributes import decoded
from .graph import Node


class Argument(NamedTuple):
    """An input or output of an op: one tensor, `number_attr` tensors of one dtype, or one for each of `list_attr`.

    Attributes:
        name: str.
        dtype: the dtype's number, 0 where an attribute gives it.
        type_attr, number_attr, list_attr: names of attributes, "" for none.
        is_ref: whether it is a reference.
    """

    name: str
    dtype: int = 0
    type_attr: str = ""
    number_attr: str = ""
    list_attr: str = ""
    is_ref: bool = False


class Definition(NamedTuple):
    """An op, or a function's signature.

    Attributes:
        name: str.
        inputs, outputs: tuples of Argument.
        attributes: name -> (kind, as an OpDef writes it: "type", "list(int)", ...; value where a node names none, None
            if it must; the values that are allowed, () for all).
        is_stateful: bool.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: dict[str, tuple[str, Any, tuple[Any, ...]]]
    is_stateful: bool = False


def of_op_def(op_def: Any) -> Definition:
    """The Definition that an OpDef proto is."""
    attributes = {
        attr.name: (attr.type, decoded(attr.default_value), decoded(attr.allowed_values) or ()) for attr in op_def.attr
    }
    inputs, outputs = (tuple(map(_argument, arguments)) for arguments in (op_def.input_arg, op_def.output_arg))
    return Definition(op_def.name, inputs, outputs, attributes, op_def.is_stateful)


def _argument(proto: Any) -> Argument:
    return Argument(proto.name, proto.type, proto.type_attr, proto.number_attr, proto.type_list_attr, proto.is_ref)


OURS: dict[str, Definition] = {}  # of ops that a library of ours adds to TensorFlow, entered where they are used
_registered: dict[str, Definition] = {}


def registered(op: str) -> Definition | None:
    """The Definition of an op of this TensorFlow, or of OURS; None if there is no such op (yet)."""
    if op not in _registered:
        op_def = tf_internals.op_def(op)
        if op_def is None:
            return OURS.get(op)
        _registered[op] = of_op_def(op_def)
    return _registered[op]


def attribute(node: Node, definition: Definition, name: str) -> Any:
    """The value of a node's attribute, or the one that its op has where the node names none."""
    value = node.attrs.get(name)
    return definition.attributes[name][1] if value is None and name in definition.attributes else value


def expanded(arguments: Sequence[Argument], node: Node, definition: Definition) -> Iterator[tuple[Argument, int]]:
    """Yields (Argument, dtype) of each tensor of a node's inputs or outputs."""
    for argument in arguments:
        for dtype in _dtypes(argument, node, definition):
            yield argument, dtype


def _dtypes(argument: Argument, node: Node, definition: Definition) -> list[int]:
    if argument.list_attr:
        return list(attribute(node, definition, argument.list_attr) or ())
    dtype = attribute(node, definition, argument.type_attr) if argument.type_attr else argument.dtype
    return [dtype or 0] * (attribute(node, definition, argument.number_attr) if argument.number_attr else 1)
