"""Modules as text, so that what a pass does can be read; tests read them from it too (tests/module_text.py).

    x:Placeholder{dtype=float32, shape=<?,4>}
    w:Const{dtype=float32, value=float32<2>(1, 2)}
    y:MatMul{T=float32, transpose_b=true}(x, w:0, ^init) on "/device:CPU:0"
    return y:0=y, init=^init

One node a line, `name:Op{attributes}(inputs) on "device"`, where all but the first two may be left out. An attribute is
a dtype's name, a number, true or false, none, bytes in quotes, a shape <2,?> (<*> for an unknown rank), a constant, a
function @name{attributes}, $name for one that the call binds, or a [list] of these. `return` says what is fetched or
run. A comment goes from "  # " to the end of its line. A function stands behind:

    function double(a: float32) -> (b: float32)
      s:Add{T=float32}(a, a)
      return b=s
    end
"""

from __future__ import annotations

import zlib
from typing import Any, Callable, Iterator

from ..tables import dtypes
from .attributes import Callee, Shape, Tensor, Unbound
from .definitions import Argument
from .graph import Graph, Node
from .module import Function, Module, Provenance

SHOWN = 16  # elements of a constant; of a longer one the first ones and a checksum are shown


def show(module: Module, provenance: bool = False) -> str:
    """A module as text; long constants are abbreviated.

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
    """A node as a line."""
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
