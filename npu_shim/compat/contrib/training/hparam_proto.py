"""The proto of hyperparameters, tensorflow.HParamDef, whose generated module TensorFlow 2 lacks (as in 1.15.5)."""

from __future__ import annotations

import numbers
from typing import Any, Mapping

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
# kind of a value: type of its field, number of the field of one value, and of that of a list
KINDS: Mapping[str, tuple[int, int, int]] = {
    "int64": (_FIELD.TYPE_INT64, 1, 4),
    "float": (_FIELD.TYPE_FLOAT, 2, 5),
    "bytes": (_FIELD.TYPE_BYTES, 3, 6),
    "bool": (_FIELD.TYPE_BOOL, 7, 8),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="hparam.proto", package="tensorflow", syntax="proto3")
    whole = file.message_type.add(name="HParamDef")
    one = whole.nested_type.add(name="HParamType")
    one.oneof_decl.add(name="kind")
    for kind, (dtype, of_value, of_list) in KINDS.items():
        many = whole.nested_type.add(name=kind.capitalize() + "List")
        many.field.add(name="value", number=1, type=dtype, label=_FIELD.LABEL_REPEATED)
        one.field.add(name=kind + "_value", number=of_value, type=dtype, label=_FIELD.LABEL_OPTIONAL, oneof_index=0)
        one.field.add(
            name=kind + "_list", number=of_list, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_OPTIONAL, oneof_index=0,
            type_name=".tensorflow.HParamDef." + many.name,
        )  # fmt: skip
    entry = whole.nested_type.add(name="HparamEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_OPTIONAL,
        type_name=".tensorflow.HParamDef.HParamType",
    )  # fmt: skip
    whole.field.add(
        name="hparam", number=1, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED,
        type_name=".tensorflow.HParamDef.HparamEntry",
    )  # fmt: skip
    return file


def _message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


HParamDef = _message("tensorflow.HParamDef")


def written(values: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """Hyperparameters as an HParamDef.

    Args:
        values: dict of name to a value or a list of values.
        kinds: dict of name to the type of its values.

    Raises:
        ValueError: a type is none of int, float, bool, str and bytes.
    """
    hparam_def = HParamDef()
    for name, value in values.items():
        kind = _kind(name, kinds[name])
        of_text = [v.encode() if isinstance(v, str) else v for v in (value if _is_list(value) else [value])]
        if _is_list(value):
            getattr(hparam_def.hparam[name], kind + "_list").value.extend(of_text)
        else:
            setattr(hparam_def.hparam[name], kind + "_value", of_text[0])
    return hparam_def


def read(proto: Any) -> dict[str, Any]:
    """The hyperparameters of an HParamDef; bytes are text."""
    values = {}
    for name, value in proto.hparam.items():
        kind = value.WhichOneof("kind")
        given = getattr(value, kind)
        parts = list(given.value) if kind.endswith("_list") else [given]
        parts = [part.decode() if isinstance(part, bytes) else part for part in parts]
        values[name] = parts if kind.endswith("_list") else parts[0]
    return values


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _kind(name: str, kind: type) -> str:
    for types, word in ((bool, "bool"), (numbers.Integral, "int64"), ((str, bytes), "bytes"), (numbers.Real, "float")):
        if issubclass(kind, types):
            return word
    raise ValueError("Unsupported parameter type: %s of hyperparameter %s" % (kind, name))
