"""A step's module as bytes, which `unpacking` reads where JAX is. Python 3.7, no TensorFlow, no numpy.

The bytes are a JSON document behind its length, and the contents of constants behind it. Attributes that many nodes
have alike are written once.
"""

from __future__ import annotations

import json
import struct
from types import MappingProxyType
from typing import Any, Iterable, Mapping, Sequence

from npu_shim.pjrt.attention import spec as specs
from npu_shim.rewriter.analysis import order, writes
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir.attributes import LOW_BITS, STORAGE, Callee, DType, Shape, Tensor, Unbound
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables import dtypes

FORMAT = 1
AGAIN = "#again"
LENGTH = struct.Struct("<q")
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
DRAWING = frozenset([  # draw from a counter of their own
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "Multinomial", "RandomShuffle",
    "RandomGamma", "RandomPoisson", "RandomPoissonV2", specs.SEED,
])  # fmt: skip
OWN = frozenset(["_Arg", specs.CALL, specs.SEED, "XlaOptimizationBarrier"])  # no TensorFlow need know them
COMPLEX = {  # dtype -> (field of a TensorProto with two entries an element, format of an entry)
    dtypes.NUMBERS["complex64"]: ("scomplex_val", "f"), dtypes.NUMBERS["complex128"]: ("dcomplex_val", "d")
}  # fmt: skip
PLAIN = frozenset([DType, Shape, bool, bytes, int])  # of one kind, equal ones are written alike; 0.0 and -0.0 are not
OWN_CONTAINER = ("", "localhost")  # TensorFlow's own, by both of its names


def packed(module: Module, feeds: Mapping[str, str], again: Iterable[str] = ()) -> bytes:
    """Returns a module as bytes.

    Args:
        module: of a step alone, in its precision; its graph's results are what is fetched or run.
        feeds: name of a Placeholder -> the name under which its value is given, in order.
        again: names of results that are to come once more, last and with AGAIN behind their names.

    Raises:
        PlanError: an op is not known to this TensorFlow; the error names its node.
    """
    writer = _Writer(module)
    placeholders = {fed: module.graph.value(name) for name, fed in feeds.items() if name in module.graph}
    graph = writer.graph(module.graph, placeholders)
    named = {name: place for name, *place in graph["results"]}
    graph["results"] += [[name + AGAIN, *named[name]] for name in again]
    functions = {}
    while writer.called:  # bodies may call others
        name = min(writer.called)
        writer.called.discard(name)
        if name in module.functions and name not in functions:
            functions[name] = writer.graph(module.functions[name])
            writer.called -= functions.keys()
    document = {
        "format": FORMAT, "graph": graph, "functions": functions, "attrs": writer.shared, "feeds": list(feeds.items()),
        "variables": writer.variables, "draws": draws(module),
    }  # fmt: skip
    text = json.dumps(document, separators=(",", ":")).encode()
    return b"".join([LENGTH.pack(len(text)), text, *writer.contents])


def draws(module: Module) -> list[tuple[str, str, int, int]]:
    """The random ops of a module that have a state: (`place` of its call or "", node, seed, seed2), in order.

    A function that several nodes call draws for each of them on its own, as in a session, which inlines it.
    """
    rows = [(place(calls), *row) for calls, *row in _drawing(module, module.graph, {})]
    return sorted(rows, key=lambda row: row[:2])


def place(calls: Sequence[str]) -> str:
    """What names a call of a function: the calling nodes, outermost first, and the function; "" outside of any."""
    return "//".join(calls)


def _drawing(module: Module, graph: Graph, known: dict[str, list[Any]]) -> list[Any]:
    """(names of calling nodes and the function, node, seed, seed2); `known`: of functions, which are asked once."""
    rows = [((), n.name, n.attrs.get("seed", 0), n.attrs.get("seed2", 0)) for n in graph if n.op in DRAWING]
    for node in graph if len(module.functions) else ():
        for name in dict.fromkeys(writes.called(node)):
            if name not in known:
                known[name] = []  # a function that calls itself
                known[name] = _drawing(module, module.functions[name], known)
            rows += [((node.name, *(calls or (name,))), *row) for calls, *row in known[name]]
    return rows


def variable_name(node: Node) -> str:
    """What identifies the variable of a node: its name in shared resources, with its container behind it."""
    shared, container = (node.attrs.get(key) or b"" for key in ("shared_name", "container"))
    name = shared.decode() or node.name
    return str(name if container.decode() in OWN_CONTAINER else "%s@%s" % (name, container.decode()))


class _Writer:
    """What is written of a module, part by part.

    Attributes:
        shared: the attributes of nodes, each different set once.
        contents: the bytes of constants.
        variables: name -> [dtype, shape].
        called: names of functions that have been met.
    """

    def __init__(self, module: Module) -> None:
        self._definition, self._graph = module.definition, module.graph
        self._functions = module.functions
        self.shared: list[Any] = []
        self._numbers: dict[tuple[Any, ...], int] = {}  # an op and PLAIN attributes -> their place in `shared`
        self._defaults: dict[str, dict[str, Any]] = {}  # op -> the attributes that it has where a node names none
        self.contents: list[bytes] = []
        self._length = 0
        self.variables: dict[str, Any] = {}
        self.called: set[str] = set()

    def graph(self, graph: Graph, placeholders: Mapping[str, Value] = MappingProxyType({})) -> dict[str, Any]:
        """A graph or a function's body; a result that is fed is the Placeholder in its place."""
        nodes = list(graph.nodes.values())
        given = {name: placeholders.get(name, value) for name, value in graph.results.items()}
        if graph is self._graph:  # of a session's, only what the results need
            needed = order.ancestors([value.node for value in given.values()])
            nodes = [node for node in nodes if node in needed]
        numbers = {node: number for number, node in enumerate(nodes)}
        returned = getattr(graph, "signature", None)
        results = given if returned is None else {out.name: given[out.name] for out in returned.outputs}
        effects = {"^" + name: node.output(CONTROL) for name, node in getattr(graph, "effects", {}).items()}
        return {
            "nodes": [self._node(node, numbers) for node in nodes],
            "results": [[name, *_place(value, numbers)] for name, value in {**results, **effects}.items()],
            "arguments": [numbers[node] for node in graph.arguments],
        }

    def _node(self, node: Node, numbers: Mapping[Node, int]) -> list[Any]:
        if node.op in VARIABLES:
            self._note_variable(node)
        inputs = [_place(value, numbers) for value in node.inputs]
        return [node.name, node.op, inputs, [numbers[control] for control in node.controls], self._attrs(node)]

    def _note_variable(self, node: Node) -> None:
        shape = node.attrs.get("shape")
        dims = None if shape is None or shape.dims is None else list(shape.dims)
        self.variables[variable_name(node)] = [dtypes.name(node.attrs["dtype"]), dims]

    def _attrs(self, node: Node) -> int:
        if node.op in self._functions:
            self.called.add(node.op)
        named = [item for item in node.attrs.items() if item[0][0] != "_"]
        if node.op in VARIABLES or not all(type(value) in PLAIN for _, value in named):
            return self._written(node, named)
        key = (node.op, *named)
        if key not in self._numbers:
            self._numbers[key] = self._written(node, named)
        return self._numbers[key]

    def _written(self, node: Node, named: Iterable[tuple[str, Any]]) -> int:
        attrs = {**self._of_op(node), **{name: self._attr(value) for name, value in named}}
        if node.op in VARIABLES:
            attrs["shared_name"] = {"s": variable_name(node)}
        self.shared.append(dict(sorted(attrs.items())))  # in one order, in all processes
        return len(self.shared) - 1

    def _of_op(self, node: Node) -> dict[str, Any]:
        defaults = self._defaults.get(node.op)
        if defaults is None:
            definition = self._definition(node.op)
            if definition is None and node.op not in OWN:
                raise PlanError("node '%s': op %s is not in this TensorFlow" % (node.name, node.op))
            kinds = {} if definition is None else definition.attributes
            defaults = {name: self._attr(default) for name, (_, default, _) in kinds.items() if default is not None}
            self._defaults[node.op] = defaults
        return defaults

    def _attr(self, value: Any) -> Any:
        """The JSON form of an attribute: a number or bool as itself, all else tagged."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, DType):
            return {"t": dtypes.name(value)}
        for kind, write in _KINDS:
            if isinstance(value, kind):
                return write(self, value)
        raise TypeError("an attribute is %r" % (value,))

    def _tensor(self, value: Tensor) -> Any:
        if value.dtype not in STORAGE and value.dtype not in COMPLEX:
            return {"text": list(value.dims)}
        content = _content(value)
        start, self._length = self._length, self._length + len(content)
        self.contents.append(content)
        return {"c": [dtypes.name(value.dtype), list(value.dims), start, len(content)]}

    def _callee(self, value: Callee) -> Any:
        self.called.add(value.name)
        return {"f": [value.name, {name: self._attr(attribute) for name, attribute in value.attributes}]}

    def _list(self, values: Iterable[Any]) -> Any:
        return {"l": [self._attr(value) for value in values]}


_KINDS: tuple[tuple[Any, Any], ...] = (  # in this order: a Shape and a Callee are tuples
    (float, lambda writer, value: {"x": value.hex()}),  # exact, infinities and NaN too
    (int, lambda writer, value: value),
    (bytes, lambda writer, value: {"s": value.decode("utf-8", "surrogateescape")}),
    (Shape, lambda writer, value: {"d": None if value.dims is None else list(value.dims)}),
    (Tensor, _Writer._tensor),
    (Callee, _Writer._callee),
    (Unbound, lambda writer, value: {"u": value.name}),
    (tuple, _Writer._list),
)


def _place(value: Value, numbers: Mapping[Node, int]) -> tuple[int, int]:
    return numbers[value.node], value.index


def _content_of_complex(value: Tensor) -> bytes:
    """The same of complex numbers: real and imaginary parts by turns; the last number stands for all that follow."""
    field, code = COMPLEX[value.dtype]
    parts = tuple(getattr(value.proto, field)) or (0.0, 0.0)
    parts = (parts + parts[-2:] * (value.size - len(parts) // 2))[: 2 * value.size]
    return struct.pack("<%d%s" % (len(parts), code), *parts)


def _content(value: Tensor) -> bytes:
    """The elements of a constant, in row-major order, little-endian."""
    if value.proto is not None and value.proto.tensor_content:
        return bytes(value.proto.tensor_content)
    if value.dtype in COMPLEX:
        return _content_of_complex(value)
    field, code = STORAGE[value.dtype]
    if value.proto is not None:
        stored = tuple(getattr(value.proto, field)) or (0,)
    else:
        stored = _stored(value)
    content, width = struct.pack("<%d%s" % (len(stored), code), *stored), struct.calcsize("<" + code)
    content += content[-width:] * (value.size - len(stored))  # the last one stands for all that follow
    return content[: value.size * width]


def _stored(value: Tensor) -> tuple[Any, ...]:
    """The elements of a constant that is made of numbers, as a TensorProto has them: 16-bit numbers by their bits."""
    numbers = value.numbers() or ()
    if value.dtype not in LOW_BITS:
        return numbers
    bits, floats, shift = LOW_BITS[value.dtype]
    return tuple(struct.unpack(bits, struct.pack(floats, number))[0] >> shift for number in numbers)
