"""A graph and the functions that it calls as flat graphs, with dtypes and shapes of their tensors.

TensorFlow does not infer from a function what a call of it returns. So it infers the shapes on a copy with all bodies
inlined: each branch of a conditional, and one iteration of a loop.
"""

from __future__ import annotations

from typing import Any, Collection, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.graph.arguments import data, output_of
from npu_shim.rewriter.graphdef import functions
from npu_shim.rewriter.ir import graphdef
from npu_shim.xla.passes.legalize.facts import inferred
from npu_shim.xla.passes.shapes import flat_bodies

GRAPH = ""  # name of the View of the graph itself
MOST_NODES = 200_000  # that the copy may have; further calls return what has no shape


class View(NamedTuple):
    """A graph, or a function's body.

    Attributes:
        graph_def: the nodes as `flat_bodies.as_graph` gives them.
        arguments: names of the nodes that stand for a function's arguments, in order.
        results: the tensors that a function returns, in order.
        calls: names of the nodes that call functions.
        copy: the graph with all bodies inlined, for dtypes and shapes.
        prefix: of the names that the nodes have there.
    """

    graph_def: Any
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    calls: frozenset[str]
    copy: Any
    prefix: str

    def tensor(self, text: str) -> Any:
        """Returns a tf.Tensor with the dtype and shape of a tensor."""
        text = self.inlined(text)
        return self.copy.as_graph_element(text if ":" in text else text + ":0")

    def inlined(self, text: str) -> str:
        """Returns the name of a tensor in the copy."""
        return _inlined(text, self.prefix, self.calls)


def have_any(graph_def: Any, ops: Collection[str]) -> bool:
    """Returns whether a GraphDef or its functions have a node of some ops."""
    every = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    return any(node.op in ops for nodes in every for node in nodes)


def called_by_name(graph_def: Any) -> Any:
    """Returns a FunctionDefLibrary of the functions whose names are ops of nodes, which tell what such nodes return."""
    every = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    ops = {node.op for nodes in every for node in nodes}
    library = tf.GraphDef().library
    library.function.extend(function for function in graph_def.library.function if function.signature.name in ops)
    return library


def of(graph_def: Any, equal: Mapping[tuple[str, str], str] | None = None) -> Mapping[str, View]:
    """Returns name of a function, or GRAPH -> its View, callers first.

    Args:
        graph_def: GraphDef; it is not changed.
        equal: (name of a View, name of a node) -> the tensor that is the node's result, by its name in the copy.
    """
    copy = _Copy(graph_def, equal or {})
    copy.add(GRAPH, "", ())
    graph = inferred(copy.made)
    return {
        name: View(flat, copy.arguments[name], copy.results[name], copy.calls[name], graph, copy.prefixes[name])
        for name, flat in copy.flats.items()
        if name in copy.prefixes
    }


def is_variant(view: View, text: str) -> bool:
    """Returns whether a tensor has dtype variant."""
    return bool(view.tensor(text).dtype.base_dtype == tf.variant)


class _Copy:
    """A GraphDef with the bodies of all calls in it."""

    def __init__(self, graph_def: Any, equal: Mapping[tuple[str, str], str]) -> None:
        self._equal = equal
        library = {function.signature.name: function for function in graph_def.library.function}
        called = calls.callers_first(graphdef.read(graph_def).graph, lambda node: True)
        names = [function.name for function in called]
        self._library = {name: library[name] for name in names}
        told = called_by_name(graph_def)
        self.flats = {GRAPH: graph_def, **{name: flat_bodies.as_graph(library[name], told) for name in names}}
        self.arguments: dict[str, tuple[str, ...]] = {GRAPH: ()}
        self.results: dict[str, tuple[str, ...]] = {GRAPH: ()}
        for name in names:
            self.arguments[name] = tuple(argument.name for argument in library[name].signature.input_arg)
            self.results[name] = tuple(flat_bodies.results(library[name], told))
        self.calls = {
            name: frozenset(node.name for node in flat.node if self._callees(node)) for name, flat in self.flats.items()
        }
        self.prefixes: dict[str, str] = {}  # of the first copy of each
        self.made = tf.GraphDef(versions=graph_def.versions)

    def add(self, name: str, prefix: str, taken: Any, within: tuple[str, ...] = ()) -> None:
        """Adds a graph or body.

        Args:
            name: of the function, or GRAPH.
            prefix: for the names of its nodes.
            taken: the tensors that its arguments are, by their names in the copy.
            within: names of the functions that it is called from.
        """
        self.prefixes.setdefault(name, prefix)
        arguments = dict(zip(self.arguments[name], taken))
        for node in self.flats[name].node:
            inputs = [_inlined(text, prefix, self.calls[name]) for text in data(node)]
            if node.name in arguments:
                self._identity(prefix + node.name, arguments[node.name], node.attr["dtype"].type)
            elif (name, node.name) in self._equal:
                self._identity(prefix + node.name, self._equal[name, node.name], node.attr["output_types"].list.type[0])
            elif node.name in self.calls[name]:
                self._add_call(node, prefix + node.name, inputs, (*within, name))
            else:
                copied = self.made.node.add()
                copied.CopyFrom(node)
                copied.name = prefix + node.name
                del copied.input[:]
                copied.input.extend(inputs)
                copied.attr.pop("_class", None)

    def _add_call(self, node, scope, inputs, within):
        first = 1 if functions.kind_of(node, self._library) == functions.BRANCH else 0
        callees = self._callees(node)
        returns = callees[-1]  # of a loop the body; the branches of a conditional return the same shapes
        for number, callee in enumerate(callees):
            if callee in within or len(self.made.node) > MOST_NODES:
                returns = None
                continue
            self.add(callee, "%s/npu_shim_%d/" % (scope, number), inputs[first:], within)
        prefix = "%s/npu_shim_%d/" % (scope, len(callees) - 1)
        for port, (argument, text) in enumerate(
            zip(self._library[callees[-1]].signature.output_arg, self.results[callees[-1]])
        ):
            if returns is None:
                node = self.made.node.add(name=_output(scope, port), op="Placeholder")
                node.attr["dtype"].type = argument.type
            else:
                self._identity(_output(scope, port), _inlined(text, prefix, self.calls[returns]), argument.type)

    def _identity(self, name, text, dtype):
        self.made.node.add(name=name, op="Identity", input=[text]).attr["T"].type = dtype

    def _callees(self, node):
        return [name for name in functions.called(node, self._library) if name in self._library]


def _inlined(text, prefix, calls):
    """The name that a tensor of a graph or body has in the copy."""
    source, port = output_of(text)
    return _output(prefix + source, port) if source in calls else prefix + text


def _output(scope, port):
    return "%s/npu_shim_output_%d" % (scope, port)
