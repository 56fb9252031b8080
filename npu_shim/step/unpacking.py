"""Programs from the bytes that `packing` writes."""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Mapping

import ml_dtypes  # comes with JAX
import numpy as np

from npu_shim.rewriter.errors import ConfigError
from npu_shim.step import lookups
from npu_shim.step.graph import Callee, Graph, Node, Program, Text, Variable
from npu_shim.step.packing import FORMAT, LENGTH

NO_NUMBERS = frozenset(["string", "resource", "variant", "invalid"])
EXTENDED = {
    name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn")
}  # fmt: skip
QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}


class Unbound(str):
    """The name of an attribute of the call that an attribute in a function's body takes its value from."""

    __slots__ = ()


def unpacked(content: bytes) -> Program:
    """Reads a program; its constants are views of the bytes.

    Raises:
        ConfigError: another release has written it.
    """
    (length,) = LENGTH.unpack_from(content)
    start = LENGTH.size + length
    document = json.loads(content[LENGTH.size : start].decode())
    if document["format"] != FORMAT:
        raise ConfigError("the program has format %s; this npu_shim reads format %d" % (document["format"], FORMAT))
    contents = memoryview(content)[start:]
    attrs = [_attrs(entry, contents) for entry in document["attrs"]]
    program = Program(
        _graph(document["graph"], attrs),
        {name: _graph(entry, attrs) for name, entry in document["functions"].items()},
        dict(document["feeds"]),
        {name: Variable(dtype_of(dtype), _shape(shape)) for name, (dtype, shape) in document["variables"].items()},
        tuple(map(tuple, document["draws"])),
    )
    return lookups.bounded(program)


@functools.lru_cache(maxsize=None)
def dtype_of(name: str) -> Any:
    """The np.dtype of a TensorFlow dtype's name, references like their values; the name where it holds no numbers."""
    name = name[: -len("_ref")] if name.endswith("_ref") else name
    if name in NO_NUMBERS:
        return name
    return EXTENDED.get(name) or np.dtype(QUANTIZED.get(name, name))


def _graph(entry: Mapping[str, Any], attrs: list[dict[str, Any]]) -> Graph:
    names = [node[0] for node in entry["nodes"]]
    nodes = {
        name: Node(
            name, op, tuple([(names[at], output) for at, output in inputs]), tuple([names[at] for at in controls]),
            attrs[number],
        )
        for name, op, inputs, controls, number in entry["nodes"]
    }  # fmt: skip
    results = {name: (names[at], output) for name, at, output in entry["results"]}
    return Graph(nodes, results, tuple(names[at] for at in entry["arguments"]))


def _shape(dims: list[int] | None) -> tuple[int, ...] | None:
    return None if dims is None else tuple(dims)


def _attrs(entry: Mapping[str, Any], contents: memoryview) -> dict[str, Any]:
    return {name: _value(value, contents) for name, value in entry.items()}


def _value(value: Any, contents: memoryview) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, held),) = value.items()
    return _TAGS[tag](held, contents)


def _constant(held: Any, contents: memoryview) -> Any:
    name, dims, start, length = held
    if not length:
        return np.zeros(dims, dtype_of(name))
    return np.frombuffer(contents[start : start + length], dtype_of(name)).reshape(dims)


_TAGS: dict[str, Callable[[Any, memoryview], Any]] = {
    "t": lambda held, contents: dtype_of(held),
    "s": lambda held, contents: held,
    "x": lambda held, contents: float.fromhex(held),
    "d": lambda held, contents: _shape(held),
    "u": lambda held, contents: Unbound(held),
    "c": _constant,
    "text": lambda held, contents: Text(tuple(held)),
    "f": lambda held, contents: Callee(held[0], _attrs(held[1], contents)),
    "l": lambda held, contents: tuple(_value(entry, contents) for entry in held),
}
