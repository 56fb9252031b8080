"""What holds of every module, whichever pass made it: edges, use lists, dtypes, loops and names.

edges      each input names an output that its node has; each control input a node of the same graph
use lists  each use is counted by the value, and by no value that is not used
dtypes     each input has the dtype that the op's definition says, a reference where it takes one
loops      all sources of a node are in its frame; no cycle but those of loops
names      each node stands under its own name; results are there
"""

from __future__ import annotations

import collections
from typing import Iterable, Iterator

from ..analysis import frames, order
from ..ir.definitions import Argument, Definition, expanded
from ..ir.graph import CONTROL, DATA, MARKS, Graph, Node, Value
from ..ir.module import Function, Module
from ..tables import dtypes


def violations(module: Module, made_by: Iterable[str] | None = None) -> list[str]:
    """What is wrong with a module, a sentence each.

    Args:
        module: a Module.
        made_by: names of passes: only nodes that these made, or touched beyond their marks, are asked for their edges
            and use lists; for these and dtypes, those of which more than control inputs was touched, and their users;
            None for all.
    """
    violations = list(_of_graph(module.graph, made_by))
    names = [body.name for body in module.functions.read_ones()] if made_by is not None else module.functions
    for name in names:
        violations += ["in function '%s' %s" % (name, text) for text in _of_graph(module.functions[name], made_by)]
    return violations


def _of_graph(graph: Graph, made_by: Iterable[str] | None) -> list[str]:
    asked, typed = _asked(graph, made_by)
    types = _Types(graph)
    broken = [text for node in asked for text in _edges(node)]
    broken += ["node '%s' is named '%s'" % (name, node.name) for name, node in graph.nodes.items() if name != node.name]
    for name, value in graph.results.items():
        if graph.nodes.get(value.node.name) is not value.node:
            broken.append("result '%s' is '%s', which is gone" % (name, value))
    if broken:  # what follows goes along the edges
        return broken
    problems = [text for node in typed for text in types.wrong(node)]
    if any(node.inputs or node.controls for node in asked):  # a cycle has a new edge, which a touched node takes
        problems += ["'%s' is on a cycle, or behind one" % node.name for node in order.unordered(graph)[:1]]
    return problems + ["'%s' takes '%s', which is in another loop" % (n.name, s.name) for n, s in frames.mixed(graph)]


def _asked(graph: Graph, made_by: Iterable[str] | None) -> tuple[Iterable[Node], Iterable[Node]]:
    """The nodes that are asked for their edges, and those that are asked for dtypes."""
    if made_by is None:
        return graph.nodes.values(), graph.nodes.values()
    passes = frozenset(made_by)
    touched = [node for node in graph.nodes.values() if node.made_by in passes and node.touched & ~MARKS]
    changed = [node for node in touched if node.touched & DATA]
    typed = dict.fromkeys([*changed, *(user for node in changed for user in node.users())])
    return dict.fromkeys([*touched, *typed]), typed


def _edges(node: Node) -> Iterator[str]:
    nodes = node.graph.nodes
    sources = [*node.inputs, *(control.output(CONTROL) for control in node.controls)]
    for value, count in collections.Counter(sources).items():
        if nodes.get(value.node.name) is not value.node:
            yield "'%s' reads '%s', which is gone" % (node.name, value)
        elif value.users.get(node) != count:
            yield "'%s' uses '%s' %d times, counted are %d" % (node.name, value, count, value.users.get(node, 0))
    for value in node.outputs():
        for user in value.users:
            if nodes.get(user.name) is not user:
                yield "'%s' is counted as used by '%s', which is gone" % (value, user.name)
            elif value not in user.inputs and not (value.index == CONTROL and node in user.controls):
                yield "'%s' is counted as used by '%s', which does not" % (value, user.name)


class _Types:
    """The dtypes of the inputs and outputs of a graph's nodes, by the definitions of their ops."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._given: dict[Node, list[tuple[Argument, int]] | None] = {}
        if isinstance(graph, Function):
            pairs = zip(graph.arguments, graph.signature.inputs)
            self._given = {node: [(argument, argument.dtype)] for node, argument in pairs}
        self._arguments = frozenset(graph.arguments)

    def wrong(self, node: Node) -> Iterator[str]:
        """What is wrong with a node's inputs."""
        definition = None if node in self._arguments else self._definition(node)
        if definition is None:
            return
        wanted = list(expanded(definition.inputs, node, definition))
        if len(wanted) != len(node.inputs):
            yield "'%s' (%s) has %d inputs, its op %d" % (node.name, node.op, len(node.inputs), len(wanted))
            return
        for number, ((argument, dtype), value) in enumerate(zip(wanted, node.inputs)):
            text = self._mismatch(argument, dtype, value)
            if text:
                yield "input %d of '%s' (%s), '%s', %s" % (number, node.name, node.op, value, text)

    def _mismatch(self, wanted: Argument, dtype: int, value: Value) -> str:
        """What is wrong with a value where an op takes `wanted`, "" for nothing."""
        outputs = self.outputs(value.node)
        if outputs is None:
            return ""
        if value.index >= len(outputs):
            return "is no output of an op %s" % value.node.op
        argument, given = outputs[value.index]
        if dtype and given and dtype % dtypes.REF != given % dtypes.REF:
            return "is %s, expected %s" % (dtypes.name(given), dtypes.name(dtype))
        is_reference = argument.is_ref or given > dtypes.REF
        return "is no reference" if wanted.is_ref and not is_reference else ""

    def outputs(self, node: Node) -> list[tuple[Argument, int]] | None:
        """(Argument, dtype, 0 where it is open) of each output of a node; None for an op that nobody knows."""
        if node not in self._given:
            definition = self._definition(node)
            outputs = None if definition is None else list(expanded(definition.outputs, node, definition))
            self._given[node] = outputs
        return self._given[node]

    def _definition(self, node: Node) -> Definition | None:
        definition: Definition | None = self._graph.module.definition(node.op)
        return definition
