"""Modules from GraphDef protos, and GraphDef protos from modules.

What nobody touched comes out as the same bytes: a node, a function, and the GraphDef itself, which is then the same
object. The GraphDef that a module was read from is never changed, and must not change while the module is in use.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterable

from ..errors import ConfigError, nearest
from ..tf_internals import forget_full_type
from .attributes import DType, encode
from .definitions import Argument, Definition, expanded, of_op_def, registered
from .graph import CONTROL, CONTROLS, DATA, FIELDS, INPUTS, Graph, Node, Value
from .module import Function, Library, Module

ARGUMENT = "_Arg"  # the op of the nodes that stand for a function's arguments


def read(graph_def: Any, known: Callable[[str], Definition | None] = registered) -> Module:
    """Reads a GraphDef.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        known: op type -> Definition; None asks this TensorFlow.

    Raises:
        ConfigError: two nodes have one name, or an input names no node.
    """
    module = opened(graph_def, known)
    module.graph  # noqa: B018  an input that names no node is told here
    return module


def opened(graph_def: Any, known: Callable[[str], Definition | None] = registered) -> Module:
    """Likewise, but its graph is read when it is first asked for; errors come then."""
    module = Module(known)
    replace(module, graph_def)
    return module


def replace(module: Module, graph_def: Any) -> None:
    """Makes a module another GraphDef, for what still works on protos; results stay by their names.

    The graph is read when it is next asked for; errors then as of `read`.
    """
    if graph_def is not module.source or not module.is_written:
        module.replace(graph_def, _read_graph)


def _read_graph(module: Module, graph_def: Any) -> tuple[Graph, Library]:
    graph = Graph(module)
    nodes = _read_nodes(graph, graph_def.node)
    _connect(nodes.values(), _Values(nodes).fill())
    bodies = {proto.signature.name: proto for proto in graph_def.library.function}
    return graph, Library(bodies, functools.partial(_read_function, module))


def insert(graph: Graph, protos: Iterable[Any], origin: Node | None = None) -> None:
    """Adds nodes to a graph that NodeDefs describe, behind all others; a module keeps these protos.

    Args:
        graph: a graph, or a function's body.
        protos: NodeDefs, in any order; they may name each other. Inputs are in a graph's notation, in a body too.
        origin: as of `Graph.add`.

    Raises:
        ConfigError: an input names no node.
        ValueError: a name is taken.
    """
    nodes = [Node(graph, proto.name, proto.op, proto) for proto in protos]
    for node in nodes:
        graph.insert(node, origin)
    _connect(nodes, _Values(graph.nodes))
    for node in nodes:
        node.touched = _as_described(graph)


def become(node: Node, proto: Any) -> None:
    """Makes a node what a NodeDef of the same name says; its users stay. Errors as of `insert`."""
    node.set_inputs(())
    node.set_controls(())
    node.redefine(proto)
    _connect([node], _Values(node.graph.nodes))
    node.touched = _as_described(node.graph)


def _as_described(graph: Graph) -> int:
    """What of a node that a NodeDef describes has to be written anew: in a body its inputs, which read otherwise."""
    return DATA | INPUTS if isinstance(graph, Function) else DATA


class _Values(Dict[str, Value]):
    """Input as text -> Value, each found once."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__()
        self._nodes = nodes

    def fill(self) -> _Values:
        """Finds the first output of every node at once."""
        self.update((name, node.value) for name, node in self._nodes.items())
        return self

    def __missing__(self, text: str) -> Value:
        name, _, number = text.partition(":")
        if text[0] == "^":
            value = self._nodes[name[1:]].output(CONTROL)
        else:
            value = self._nodes[name].output(int(number or 0))
        self[text] = value
        return value


class _BodyValues(Dict[str, Value]):
    """Input as text in a function's body -> Value: "argument", "argument:1", "node:output:1", "^node"."""

    def __init__(self, graph: Function) -> None:
        super().__init__()
        self._graph = graph

    def __missing__(self, text: str) -> Value:
        name, *place = text.lstrip("^").split(":")
        node = self._graph[name]
        if text[0] == "^":
            value = node.output(CONTROL)
        elif len(place) < 2:
            value = node.output(int(place[0]) if place else 0)
        else:
            value = node.output(_first(node, place[0]) + int(place[1]))
        self[text] = value
        return value


def _read_nodes(graph: Graph, protos: Any) -> dict[str, Node]:
    nodes = graph.nodes
    for proto in protos:
        name = proto.name
        nodes[name] = Node(graph, name, proto.op, proto)
    if len(nodes) < len(protos) + len(graph.arguments):
        names = [proto.name for proto in protos]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError("the graph has two nodes '%s'" % twice)
    return nodes


def _connect(nodes: Iterable[Node], values: dict[str, Value]) -> None:
    """Gives nodes the inputs that their protos name. Control inputs come last in a NodeDef."""
    for node in nodes:
        if node.proto is None:
            continue
        texts = node.proto.input[:]  # a slice is made at once, an iterator asks for each
        if not texts:
            continue
        try:
            taken = [values[text] for text in texts]
        except KeyError as missing:
            text = "node '%s' reads '%s', which is not in the graph%s"
            raise ConfigError(text % (node.name, missing.args[0], nearest(missing.args[0], node.graph.nodes))) from None
        for value in taken:
            users = value.users
            users[node] = users.get(node, 0) + 1
        if taken[-1].index == CONTROL:
            node.controls = tuple([value.node for value in taken if value.index == CONTROL])
            del taken[-len(node.controls) :]
        node.inputs = tuple(taken)


def _read_function(module: Module, proto: Any) -> Function:
    function = Function(module, proto.signature.name, of_op_def(proto.signature), proto)
    for argument in function.signature.inputs:
        node = Node(function, argument.name, ARGUMENT)
        if argument.dtype:
            node.attrs["T"] = DType(argument.dtype)
        function.arguments.append(node)
        function.nodes[argument.name] = node
    values = _BodyValues(function)
    _connect(_read_nodes(function, proto.node_def).values(), values)
    function.results = {name: values[proto.ret[name]] for name in sorted(proto.ret)}
    function.effects = {name: function[proto.control_ret[name]] for name in sorted(proto.control_ret)}
    function.version = 0
    return function


def write(module: Module, message: Any = None) -> Any:
    """Returns a module as a GraphDef; the one that it was read from if nothing has changed.

    Args:
        module: a Module.
        message: the class tf.compat.v1.GraphDef; needed for a module that was not read from one.
    """
    if module.is_written:
        return module.source
    graph_def = (type(module.source) if message is None else message)()
    if module.source is not None:
        graph_def.versions.CopyFrom(module.source.versions)
    _write_nodes(module.graph, graph_def.node, str)
    if module.functions or (module.source is not None and module.source.HasField("library")):
        write_library(module, graph_def.library)
    module.wrote(graph_def)
    return graph_def


def write_library(module: Module, library: Any) -> None:
    """Makes an empty FunctionDefLibrary what a module's library is."""
    library.SetInParent()
    for name in module.functions:
        untouched = module.functions.untouched(name)
        if untouched is None:
            write_function(module.functions[name], library.function.add())
        else:
            library.function.add().CopyFrom(untouched)
    if module.source is not None:
        library.gradient.extend(module.source.library.gradient)


def _write_nodes(graph: Graph, protos: Any, text: Callable[[Value], str]) -> None:
    arguments = frozenset(graph.arguments)
    run: list[Any] = []  # untouched nodes in a row are copied at once
    for node in graph.nodes.values():
        if node.is_untouched:
            run.append(node.proto)
        elif node not in arguments:
            protos.extend(run)
            run.clear()
            written(node, protos.add(), text)
    protos.extend(run)


def written(node: Node, proto: Any, text: Callable[[Value], str] = str) -> Any:
    """Makes an empty NodeDef what a node is, and returns it; `text` writes its inputs, if they have been touched."""
    if node.proto is not None:
        proto.CopyFrom(node.proto)
    if node.touched & FIELDS:
        proto.name, proto.op, proto.device = node.name, node.op, node.device
    if node.touched & (INPUTS | CONTROLS):
        del proto.input[:]
        proto.input.extend(map(text, node.inputs))
        proto.input.extend("^" + control.name for control in node.controls)
    changed, removed = node.attrs.changes()
    for name in removed:
        del proto.attr[name]
    for name, value in changed.items():
        attr = proto.attr[name]
        was = attr.SerializeToString()
        attr.Clear()
        encode(value, attr)
        is_dtype = isinstance(value[0] if type(value) is tuple and value else value, DType)
        if is_dtype and attr.SerializeToString() != was:
            forget_full_type(proto, "experimental_type")
    return proto


def write_function(function: Function, proto: Any) -> Any:
    """Makes an empty FunctionDef what a function is, and returns it."""
    if function.proto is None:
        _write_signature(function.signature, proto.signature)
        proto.signature.control_output.extend(function.effects)
        for name, value in function.attributes.items():
            encode(value, proto.attr[name])
    else:
        proto.CopyFrom(function.proto)
        _rewrite_signature(function.signature, proto)
    del proto.node_def[:]
    _write_nodes(function, proto.node_def, body_text)
    for name, value in function.results.items():
        proto.ret[name] = body_text(value)
    for name, node in function.effects.items():
        proto.control_ret[name] = node.name
    return proto


def _write_signature(signature: Definition, proto: Any) -> None:
    proto.name, proto.is_stateful = signature.name, signature.is_stateful
    for arguments, protos in ((signature.inputs, proto.input_arg), (signature.outputs, proto.output_arg)):
        for argument in arguments:
            protos.add(name=argument.name, type=argument.dtype, is_ref=argument.is_ref)


def _rewrite_signature(signature: Definition, proto: Any) -> None:
    """Writes the dtypes that have changed; whatever else is said of such an argument was true of the old one."""
    for number, (argument, stored) in enumerate(zip(signature.inputs, proto.signature.input_arg)):
        if argument.dtype != stored.type:
            _rewrite_argument(argument, stored)
            proto.arg_attr.pop(number, None)
    for argument, stored in zip(signature.outputs, proto.signature.output_arg):
        if argument.dtype != stored.type:
            _rewrite_argument(argument, stored)


def _rewrite_argument(argument: Argument, proto: Any) -> None:
    proto.CopyFrom(type(proto)(name=argument.name, type=argument.dtype, is_ref=argument.is_ref))


def _first(node: Node, output: str) -> int:
    """The index of the first tensor of a named output."""
    definition = _required(node)
    for number, (argument, _) in enumerate(expanded(definition.outputs, node, definition)):
        if argument.name == output:
            return number
    raise ConfigError("node '%s' (%s) has no output '%s'" % (node.name, node.op, output))


def body_text(value: Value) -> str:
    """A tensor as an input in a function's body names it."""
    node = value.node
    if node.op == ARGUMENT:
        return str(value)
    definition = _required(node)
    outputs: list[Argument] = [argument for argument, _ in expanded(definition.outputs, node, definition)]
    argument = outputs[value.index]
    return "%s:%s:%d" % (node.name, argument.name, value.index - outputs.index(argument))


def _required(node: Node) -> Definition:
    definition: Definition | None = node.graph.module.definition(node.op)
    if definition is None:
        raise ConfigError("node '%s': op %s is not in this TensorFlow" % (node.name, node.op))
    return definition
