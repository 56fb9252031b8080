"""Modules as text, so that what a pass does can be read: text in, text out.

    x:Placeholder{dtype=float32, shape=<?,4>}
    w:Const{dtype=float32, value=float32<2>(1, 2)}
    y:MatMul{T=float32, transpose_b=true}(x, w:0, ^init) on "/device:CPU:0"
    return y:0=y, init=^init

One node a statement, `name:Op{attributes}(inputs) on "device"`, where all but the first two may be left out; statements
may also stand in one line, with semicolons. An attribute is a dtype's name, a number, true or false, none, bytes in
quotes, a shape <2,?> (<*> for an unknown rank), a constant, a function @name{attributes}, $name for one that the call
binds, or a [list] of these. `return` says what is fetched or run. A comment goes from "  # " to the end of its line. A
function stands behind:

    function double(a: float32) -> (b: float32)
      s:Add{T=float32}(a, a)
      return b=s
    end
"""

from __future__ import annotations

import ast
import re
import zlib
from typing import Any, Callable, Iterator, NamedTuple

from ..errors import ConfigError
from ..tables import dtypes
from .attributes import Callee, DType, Shape, Tensor, Unbound
from .definitions import Argument, Definition, registered
from .graph import CONTROL, Graph, Node, Value
from .graphdef import ARGUMENT
from .module import Function, Module, Provenance

SHOWN = 16  # elements of a constant; of a longer one the first ones and a checksum are shown
NAME = r"[\w./\\\[\]>+-]+"
HEAD = re.compile(rf"\s*;?\s*(?P<name>{NAME}):(?P<op>\w+)(@(?P<dtypes>\w+))?(\[(?P<flag>\w+)\])?")
INPUT = re.compile(rf"\^?{NAME}(:\d+)?")
COMMENT = re.compile(r"[ \t]+# [^\n]*")
RETURN = re.compile(r"\s*;?\s*(?P<kind>return|effects) ")
RESULT = re.compile(rf"\s*(?P<name>{NAME}(:\d+)?)=(?P<value>\^?{NAME}(:\d+)?)")
FUNCTION = re.compile(r"\s*(?P<stateful>stateful )?function (?P<name>\w+)\((?P<inputs>.*?)\) -> \((?P<outputs>.*?)\)")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
DTYPE = re.compile(r"(%s)(_ref)?\b" % "|".join(dtypes.NAMES))
NUMBER = re.compile(r"-?(inf|nan|\d+(\.\d*)?(e[+-]?\d+)?)")
SHAPE = re.compile(r"<([\d?,*]*)>")


class Statement(NamedTuple):
    """A node as it is written: `dtypes` and `flag` are what stands in op@dtypes[flag], for the tests of planners."""

    name: str
    op: str
    dtypes: str = ""
    flag: str = ""
    attrs: tuple[tuple[str, Any], ...] = ()
    inputs: tuple[str, ...] = ()
    device: str = ""


# -- out ---------------------------------------------------------------------------------------------------------------


def show(module: Module, provenance: bool = False) -> str:
    """A module as text; long constants are abbreviated, so that it may not be read again.

    Args:
        module: a Module.
        provenance: whether comments say which pass has made or touched a node, and for which one.
    """
    show = _show_with_provenance if provenance else show_node
    lines = list(_shown_graph(module.graph, show))
    for name in module.functions:
        function = module.functions[name]
        signature = function.signature
        inputs, outputs = (", ".join(map(_shown_argument, side)) for side in (signature.inputs, signature.outputs))
        stateful = "stateful " if signature.is_stateful else ""
        lines.append("%sfunction %s(%s) -> (%s)" % (stateful, name, inputs, outputs))
        lines += ["  " + line for line in _shown_graph(function, show)]
        lines.append("end")
    return "\n".join(lines) + "\n"


def _shown_graph(graph: Graph, show: Callable[[Node], str]) -> Iterator[str]:
    arguments = set(graph.arguments)
    for node in graph:
        if node not in arguments:
            yield show(node)
    if graph.results:
        yield "return " + ", ".join("%s=%s" % pair for pair in graph.results.items())
    if isinstance(graph, Function) and graph.effects:
        yield "effects " + ", ".join("%s=%s" % (name, node.name) for name, node in graph.effects.items())


def show_node(node: Node) -> str:
    """A node as a statement."""
    attrs = ", ".join("%s=%s" % (name, _shown(value)) for name, value in node.attrs.items())
    inputs = ", ".join([*map(str, node.inputs), *("^" + control.name for control in node.controls)])
    return "%s:%s%s%s%s" % (
        node.name, node.op, "{%s}" % attrs if attrs else "", "(%s)" % inputs if inputs else "",
        ' on "%s"' % node.device if node.device else "",
    )  # fmt: skip


def _show_with_provenance(node: Node) -> str:
    return show_node(node) + ("  # " + str(Provenance(node.made_by, node.origin)) if node.made_by else "")


def _shown_argument(argument: Argument) -> str:
    kind = argument.list_attr and "*" + argument.list_attr
    kind = kind or (dtypes.name(argument.dtype) if argument.dtype else argument.type_attr)
    many = argument.number_attr + "*" if argument.number_attr else ""
    return "%s: %s%s%s" % (argument.name, "&" if argument.is_ref else "", many, kind)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is tuple:
        return "[%s]" % ", ".join(map(_shown, value))
    return SHOW.get(type(value), repr)(value)


def _shown_shape(shape: Shape) -> str:
    return "<*>" if shape.dims is None else "<%s>" % ",".join("?" if dim < 0 else str(dim) for dim in shape.dims)


def _shown_tensor(tensor: Tensor) -> str:
    numbers = tensor.numbers()
    if numbers is None:
        inside = "... %08x" % zlib.crc32(tensor.proto.SerializeToString())
    elif len(numbers) > SHOWN:
        inside = "%s, ... %08x" % (", ".join(map(_shown, numbers[:4])), zlib.crc32(repr(numbers).encode()))
    else:
        inside = ", ".join(map(_shown, numbers))
    return "%r%s(%s)" % (tensor.dtype, _shown_shape(Shape(tensor.dims)), inside)


def _shown_callee(callee: Callee) -> str:
    attributes = ", ".join("%s=%s" % (name, _shown(value)) for name, value in callee.attributes)
    return "@%s%s" % (callee.name, "{%s}" % attributes if attributes else "")


SHOW: dict[type, Callable[[Any], str]] = {
    Shape: _shown_shape, Tensor: _shown_tensor, Callee: _shown_callee, Unbound: lambda value: "$" + value.name,
    bytes: lambda value: repr(value)[1:], type(None): lambda value: "none",
}  # fmt: skip


# -- in ----------------------------------------------------------------------------------------------------------------


def parse(text: str, known: Callable[[str], Definition | None] = registered) -> Module:
    """Reads a module.

    Args:
        text: in the notation above.
        known: op type -> Definition; None asks this TensorFlow.

    Raises:
        ConfigError: the text is not in the notation, a name is there twice, or an input names no node.
    """
    module, reader = Module(known), _Reader(text)
    _fill(module.graph, reader)
    while reader.take(FUNCTION):
        head = reader.last
        inputs, outputs = (
            tuple(map(_argument, filter(None, head[side].split(", ")))) for side in ("inputs", "outputs")
        )
        signature = Definition(head["name"], inputs, outputs, {}, bool(head["stateful"]))
        function = Function(module, head["name"], signature)
        for argument in signature.inputs:
            function.arguments.append(function.add(argument.name, ARGUMENT, attrs={"T": DType(argument.dtype)}))
        _fill(function, reader)
        reader.require("end")
        module.functions.add(function)
    reader.require_end()
    return module


def statements(text: str) -> list[Statement]:
    """The nodes of a graph as they are written; errors as of `parse`."""
    reader = _Reader(text)
    rows = list(iter(reader.statement, None))
    reader.require_end()
    return rows


def _fill(graph: Graph, reader: _Reader) -> None:
    rows = list(iter(reader.statement, None))
    for row in rows:
        if row.name in graph:
            raise ConfigError("the text has two nodes '%s'" % row.name)
        graph.add(row.name, row.op, attrs=dict(row.attrs), device=row.device)
    for row in rows:
        values = [_value(graph, text, row.name) for text in row.inputs]
        graph[row.name].set_inputs([value for value in values if value.index != CONTROL])
        graph[row.name].set_controls([value.node for value in values if value.index == CONTROL])
    for kind, name, text in reader.results():
        value = _value(graph, text, "return")
        if kind == "return":
            graph.results[name] = value
        elif isinstance(graph, Function):
            graph.effects[name] = value.node


def _value(graph: Graph, text: str, user: str) -> Value:
    try:
        return graph.value(text)
    except KeyError:
        raise ConfigError("'%s' reads '%s', which is not in the text" % (user, text)) from None


def _argument(text: str) -> Argument:
    name, _, kind = text.partition(": ")
    return Argument(name, dtypes.NUMBERS[kind.lstrip("&")], is_ref=kind[0] == "&")


class _Reader:
    """Reads pieces of a text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.last: Any = None  # the match of the last `take`

    def take(self, pattern: Any) -> bool:
        """Whether a pattern stands here; then it is taken."""
        self.last = pattern.match(self.text, self.place)
        if self.last is not None:
            self.place = self.last.end()
        return self.last is not None

    def word(self, word: str) -> bool:
        """Whether a word stands here, behind spaces; then it is taken."""
        return self.take(re.compile(r"\s*" + re.escape(word)))

    def require(self, word: str) -> None:
        if not self.word(word):
            rest = self.text[self.place :].lstrip()
            line = self.text.count("\n", 0, len(self.text) - len(rest)) + 1
            there = rest[:40].rstrip() or "the end"
            raise ConfigError("line %d of the graph: expected %s before '%s'" % (line, word, there))

    def require_end(self) -> None:
        if self.text[self.place :].strip(" ;\n"):
            self.require("a node")

    def statement(self) -> Statement | None:
        """The node that stands here, None if none does."""
        if RETURN.match(self.text, self.place) or not self.take(HEAD):
            return None
        head = self.last.groupdict(default="")
        attrs = self.several("}", self.attribute) if self.word("{") else []
        inputs = self.several(")", self.input) if self.word("(") else []
        device = self.value().decode() if self.word("on ") else ""
        self.take(COMMENT)
        return Statement(head["name"], head["op"], head["dtypes"], head["flag"], tuple(attrs), tuple(inputs), device)

    def several(self, end: str, one: Callable[[], Any]) -> list[Any]:
        """What stands here with commas between, up to `end`."""
        taken: list[Any] = []
        while not self.word(end):
            if taken:
                self.require(",")
            self.word("")  # spaces
            taken.append(one())
        return taken

    def input(self) -> str:
        if not self.take(INPUT):
            self.require("an input")
        return str(self.last.group())

    def attribute(self) -> tuple[str, Any]:
        if not self.take(re.compile(r"\w+")):
            self.require("an attribute")
        name = self.last.group()
        self.require("=")
        return name, self.value()

    def results(self) -> Iterator[tuple[str, str, str]]:
        """What the lines of results say that stand here: (return or effects, name, input)."""
        while self.take(RETURN):
            kind = self.last["kind"]
            while self.take(RESULT):
                yield kind, self.last["name"], self.last["value"]
                self.word(",")

    def value(self) -> Any:
        """The attribute's value that stands here."""
        for word, value in (("true", True), ("false", False), ("none", None)):
            if self.word(word):
                return value
        if self.word("["):
            return tuple(self.several("]", self.value))
        if self.word("@"):
            self.take(re.compile(NAME))
            return Callee(self.last.group(), tuple(self.several("}", self.attribute) if self.word("{") else ()))
        if self.word("$"):
            self.take(re.compile(r"\w+"))
            return Unbound(self.last.group())
        if self.take(QUOTED):
            return ast.literal_eval("b" + self.last.group())
        return self.number()

    def number(self) -> Any:
        """The dtype, constant, shape or number that stands here."""
        if self.take(DTYPE):
            dtype = DType(dtypes.NUMBERS[self.last[1]] + (dtypes.REF if self.last[2] else 0))
            return self.constant(dtype, self.dims()) if self.text[self.place : self.place + 1] == "<" else dtype
        if SHAPE.match(self.text, self.place):
            return Shape(self.dims())
        if not self.take(NUMBER):
            self.require("a value")
        text = self.last.group()
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def dims(self) -> Any:
        self.take(SHAPE)
        sizes = self.last[1]
        if sizes == "*":
            return None
        return tuple(-1 if size == "?" else int(size) for size in filter(None, sizes.split(",")))

    def constant(self, dtype: DType, dims: tuple[int, ...]) -> Tensor:
        self.require("(")
        numbers = self.several(")", self.value)
        return Tensor(dtype, dims, tuple(numbers))
