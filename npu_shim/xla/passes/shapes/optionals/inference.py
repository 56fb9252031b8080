"""The dtypes and shapes of a module's values, inside of functions too.

TensorFlow does not infer from a function what a call of it returns. So it infers the shapes on a copy with all bodies
inlined: each branch of a conditional, and one iteration of a loop.

    c:PartitionedCall{f=@f}(x)       becomes    c/npu_shim_0/a:Identity(x)   c/npu_shim_0/y:Relu(c/npu_shim_0/a)
    f(a): y = Relu(a)                           c/npu_shim_output_0:Identity(c/npu_shim_0/y)
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import inlined
from npu_shim.xla.passes.legalize import facts

MOST_NODES = 200_000  # that the copy may have; further calls return what has no shape


class Inferred:
    """What TensorFlow infers of a module as it is now; of a function that is called twice, from its first call.

    Args:
        module: has Placeholders of full shapes.
        equal: OptionalGetValue -> the value that it gives.

    Attributes:
        graphs: the graph and the functions that it calls, callers first.
    """

    def __init__(self, module: Module, equal: Mapping[Node, Value]) -> None:
        self._copy = tf.GraphDef(versions=None if module.source is None else module.source.versions)
        self._equal = equal
        self._takers: list[tuple[Any, Value]] = []  # (NodeDef of an OptionalGetValue of `equal`, what it gives)
        self._prefixes: dict[Graph, str] = {}  # of the names of nodes in the first copy of each
        self._add(module.graph, "", ())
        self._resolve_takers()
        functions = calls.callers_first(module.graph, lambda node: True)
        self.graphs = tuple(graph for graph in (module.graph, *functions) if graph in self._prefixes)
        self._tensors = facts.inferred(self._copy)

    def tensor(self, value: Value) -> Any:
        """Returns a tf.Tensor with the dtype and shape of a value."""
        while value.node.op == "NextIteration":  # TensorFlow infers without the edges that close loops
            value = value.node.inputs[0]
        name = _name(value, self._prefixes[value.node.graph])
        return self._tensors.as_graph_element(name if ":" in name else name + ":0")

    def is_variant(self, value: Value) -> bool:
        """Returns whether a value has dtype variant."""
        return bool(self.tensor(value).dtype.base_dtype == tf.variant)

    def _add(self, graph: Graph, prefix: str, given: Sequence[str], within: tuple[Graph, ...] = ()) -> None:
        """Adds a graph or body to the copy.

        Args:
            graph: it.
            prefix: for the names of its nodes.
            given: the tensors that its arguments are, by their names in the copy.
            within: the graphs that it is called from.
        """
        self._prefixes.setdefault(graph, prefix)
        arguments = dict(zip(graph.arguments, given))
        for node in graph:
            name = prefix + node.name
            if node in arguments:
                self._add_identity(name, arguments[node], node.attrs["T"])
            elif calls.functions(node):
                self._add_call(node, prefix, (*within, graph))
            else:
                proto = self._copy.node.add()
                inlined.written_as(node, name, [_name(value, prefix) for value in node.inputs], proto)
                if node in self._equal:
                    self._takers.append((proto, self._equal[node]))

    def _add_call(self, node: Node, prefix: str, within: tuple[Graph, ...]) -> None:
        scope, functions = prefix + node.name, calls.functions(node)
        given = [_name(value, prefix) for value in calls.given(node)]
        is_complete = True
        for number, function in enumerate(functions):
            inner = "%s/npu_shim_%d/" % (scope, number)
            if function in within or len(self._copy.node) > MOST_NODES:
                is_complete = False
            else:
                self._add(function, inner, given, within)
        last = functions[-1]  # of a loop the body; the branches of a conditional return the same shapes
        for port, (output, value) in enumerate(zip(last.signature.outputs, last.returned)):
            name = _output(scope, port)
            if is_complete:
                self._add_identity(name, _name(value, inner), output.dtype)
            else:
                self._copy.node.add(name=name, op="Placeholder").attr["dtype"].type = output.dtype

    def _add_identity(self, name: str, text: str, dtype: int) -> None:
        self._copy.node.add(name=name, op="Identity", input=[text]).attr["T"].type = dtype

    def _resolve_takers(self) -> None:
        """Makes each OptionalGetValue of `equal` an Identity, once it is known where all graphs stand."""
        for proto, value in self._takers:
            if value.node.graph in self._prefixes:
                dtype = proto.attr["output_types"].list.type[0]
                proto.op, proto.input[:] = "Identity", [_name(value, self._prefixes[value.node.graph])]
                proto.attr.clear()
                proto.attr["T"].type = dtype


def _name(value: Value, prefix: str) -> str:
    """The name that a value has in the copy of its graph."""
    if calls.functions(value.node):
        return _output(prefix + value.node.name, value.index)
    return prefix + str(value)


def _output(scope: str, port: int) -> str:
    return "%s/npu_shim_output_%d" % (scope, port)
