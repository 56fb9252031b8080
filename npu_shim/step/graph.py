"""Graphs as they travel to where JAX is: immutable, with the attributes that the nodes' ops have by default filled in.

    attribute    type      shape          tensor      func      s      i    f      b     list
    here         np.dtype  tuple or None  np.ndarray  Callee    str    int  float  bool  tuple

A dtype that holds no numbers is its name as a str: "string", "resource", "variant". An open dimension is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Mapping, NamedTuple

ARGUMENT = "_Arg"  # the op of the nodes that stand for a function's arguments, as in rewriter.ir
CONTROL = -1  # the index of a result that is no tensor: that a node has run

Source = tuple[str, int]  # a node's name and the number of its output


class Callee(NamedTuple):
    """A function of the program, and the attributes that it is called with."""

    name: str
    attrs: Mapping[str, Any]


class Text(NamedTuple):
    """A constant of strings, which no program computes with: assertions and prints take it, nothing else."""

    shape: tuple[int, ...]


class Node(NamedTuple):
    """An operation.

    Attributes:
        name, op: str.
        inputs: where each data input comes from.
        controls: names of the nodes that it waits for.
        attrs: name -> value as above.
    """

    name: str
    op: str
    inputs: tuple[Source, ...]
    controls: tuple[str, ...]
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        """As errors name it."""
        return "node '%s' (%s)" % (self.name, self.op)

    def sources(self) -> list[str]:
        """Names of the nodes that it takes inputs of or waits for; one may come twice."""
        return [*[name for name, _ in self.inputs], *self.controls]


@dataclass(frozen=True)
class Graph:
    """A program's graph, or a function's body.

    Attributes:
        nodes: name -> Node, in the order of the module.
        results: name -> (node, output): what is fetched or run, or what a function returns, in order; an output of
            CONTROL for what is only run.
        arguments: of a body: names of the nodes that stand for its arguments.
    """

    nodes: Mapping[str, Node]
    results: Mapping[str, Source]
    arguments: tuple[str, ...] = ()


class Variable(NamedTuple):
    """What is known of a variable: its dtype (np.dtype), and its shape, None for an unknown rank."""

    dtype: Any
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Program:
    """A step.

    Attributes:
        graph: its Graph; its results are the fetches and the operations that are run.
        functions: name -> Graph, the bodies that its nodes call.
        feeds: name of a node -> the name under which its value is given, in order.
        variables: name of a variable -> Variable.
        draws: (place or "", node, seed, seed2) of each random op that has a state, see `random.draws`.
    """

    graph: Graph
    functions: Mapping[str, Graph]
    feeds: Mapping[str, str]
    variables: Mapping[str, Variable]
    draws: tuple[tuple[str, str, int, int], ...] = ()

    @property
    def fetches(self) -> tuple[str, ...]:
        """Names of the results that are tensors, in order."""
        return tuple(name for name, (_, output) in self.graph.results.items() if output != CONTROL)

    def every(self) -> Iterator[Node]:
        """All nodes, those of the functions behind those of the graph."""
        for graph in (self.graph, *self.functions.values()):
            yield from graph.nodes.values()
