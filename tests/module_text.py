"""Reads modules in the notation of npu_shim.rewriter.ir.text: a test of a pass is text in, text out.

Statements may also stand in one line, with semicolons.
"""

import ast
import collections
import re

from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir.attributes import Callee, DType, Shape, Tensor, Unbound
from npu_shim.rewriter.ir.definitions import Argument, Definition, registered
from npu_shim.rewriter.ir.graph import CONTROL
from npu_shim.rewriter.ir.graphdef import ARGUMENT
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes

NAME = r"[\w./\\\[\]>+-]+"
HEAD = re.compile(rf"\s*;?\s*(?P<name>{NAME}):(?P<op>\w+)")
INPUT = re.compile(rf"\^?{NAME}(:\d+)?")
COMMENT = re.compile(r"[ \t]+# [^\n]*")
RETURN = re.compile(r"\s*;?\s*(?P<kind>return|effects) ")
RESULT = re.compile(rf"\s*(?P<name>{NAME}(:\d+)?)=(?P<value>\^?{NAME}(:\d+)?)")
FUNCTION = re.compile(r"\s*(?P<stateful>stateful )?function (?P<name>\w+)\((?P<inputs>.*?)\) -> \((?P<outputs>.*?)\)")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
DTYPE = re.compile(r"(%s)(_ref)?\b" % "|".join(dtypes.NAMES))
NUMBER = re.compile(r"-?(inf|nan|\d+(\.\d*)?(e[+-]?\d+)?)")
SHAPE = re.compile(r"<([\d?,*]*)>")


# a node as it is written; attrs are (name, value) pairs
Statement = collections.namedtuple("Statement", "name op attrs inputs device")


def parse(text, known=registered):
    """Reads a module.

    Args:
        text: in that notation.
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


def _fill(graph, reader):
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


def _value(graph, text, user):
    try:
        return graph.value(text)
    except KeyError:
        raise ConfigError("'%s' reads '%s', which is not in the text" % (user, text)) from None


def _argument(text):
    name, _, kind = text.partition(": ")
    return Argument(name, dtypes.NUMBERS[kind.lstrip("&")], is_ref=kind[0] == "&")


class _Reader:
    """Reads pieces of a text, from its beginning to its end."""

    def __init__(self, text):
        self.text, self.place = text, 0
        self.last = None  # the match of the last `take`

    def take(self, pattern):
        """Whether a pattern stands here; then it is taken."""
        self.last = pattern.match(self.text, self.place)
        if self.last is not None:
            self.place = self.last.end()
        return self.last is not None

    def word(self, word):
        """Whether a word stands here, behind spaces; then it is taken."""
        return self.take(re.compile(r"\s*" + re.escape(word)))

    def require(self, word):
        if not self.word(word):
            rest = self.text[self.place :].lstrip()
            line = self.text.count("\n", 0, len(self.text) - len(rest)) + 1
            there = rest[:40].rstrip() or "the end"
            raise ConfigError("line %d of the graph: expected %s before '%s'" % (line, word, there))

    def require_end(self):
        if self.text[self.place :].strip(" ;\n"):
            self.require("a node")

    def statement(self):
        """The node that stands here, None if none does."""
        if RETURN.match(self.text, self.place) or not self.take(HEAD):
            return None
        name, op = self.last["name"], self.last["op"]
        attrs = self.several("}", self.attribute) if self.word("{") else []
        inputs = self.several(")", self.input) if self.word("(") else []
        device = self.value().decode() if self.word("on ") else ""
        self.take(COMMENT)
        return Statement(name, op, attrs, inputs, device)

    def several(self, end, one):
        """What stands here with commas between, up to `end`."""
        taken = []
        while not self.word(end):
            if taken:
                self.require(",")
            self.word("")  # spaces
            taken.append(one())
        return taken

    def input(self):
        if not self.take(INPUT):
            self.require("an input")
        return str(self.last.group())

    def attribute(self):
        if not self.take(re.compile(r"\w+")):
            self.require("an attribute")
        name = self.last.group()
        self.require("=")
        return name, self.value()

    def results(self):
        """What the lines of results say that stand here: (return or effects, name, input)."""
        while self.take(RETURN):
            kind = self.last["kind"]
            while self.take(RESULT):
                yield kind, self.last["name"], self.last["value"]
                self.word(",")

    def value(self):
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

    def number(self):
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

    def dims(self):
        self.take(SHAPE)
        sizes = self.last[1]
        if sizes == "*":
            return None
        return tuple(-1 if size == "?" else int(size) for size in filter(None, sizes.split(",")))

    def constant(self, dtype, dims):
        self.require("(")
        numbers = self.several(")", self.value)
        return Tensor(dtype, dims, tuple(numbers))
