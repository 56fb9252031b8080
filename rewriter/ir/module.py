"""A graph and the functions that its nodes call."""

from __future__ import annotations

from typing import Any, Callable, Iterator

from . import definitions
from .definitions import Definition
from .graph import Graph


class Function(Graph):
    """A function's body, which reads like a graph: `arguments` are nodes of op _Arg, `results` what it returns.

    Attributes:
        name: str.
        signature: its Definition.
        effects: name -> Node, the nodes that run though no result needs them (control results).
        proto: the FunctionDef that it was read from, None for a new one.
    """

    def __init__(self, module: Module, name: str, signature: Definition, proto: Any = None) -> None:
        super().__init__(module)
        self.name, self.signature, self.proto = name, signature, proto
        self.effects: dict[str, Any] = {}


class Module:
    """A graph and its function library.

    Attributes:
        graph: the Graph.
        functions: the Library.
        source: the GraphDef that it was read from, None for one that was not.
    """

    def __init__(
        self,
        source: Any = None,
        known: Callable[[str], Definition | None] = definitions.registered,
    ) -> None:
        self.source = source
        self.graph = Graph(self)
        self.functions = Library()
        self.properties: dict[Any, Any] = {}  # what analyses have found; see analysis/cache.py
        self._known = known

    @property
    def version(self) -> int:
        """A number that rises with every change."""
        return self.functions.version + sum(graph.version for graph in self.graphs())

    def graphs(self) -> Iterator[Graph]:
        """The graph, then the bodies of the functions that have been read."""
        yield self.graph
        yield from self.functions.read_ones()

    def definition(self, op: str) -> Definition | None:
        """The Definition of an op or of a function of the library, None if it is neither."""
        if op in self.functions:
            return self.functions.signature(op)
        return self._known(op)


class Library:
    """Functions by name, in order; a body is read when it is asked for.

    Args:
        unread: the functions of a GraphDef, name -> FunctionDef.
        read: makes a Function of a FunctionDef.
    """

    def __init__(self, unread: dict[str, Any] | None = None, read: Callable[[Any], Function] | None = None):
        self.version = 0
        self._entries: dict[str, Any] = dict(unread or {})  # name -> Function or FunctionDef
        self._read = read

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> Function:
        entry = self._entries[name]
        if not isinstance(entry, Function):
            entry = self._entries[name] = self._read(entry)  # type: ignore[misc]  # only read ones are unread
        return entry  # type: ignore[no-any-return]

    def signature(self, name: str) -> Definition:
        """The signature of a function, without its body."""
        entry = self._entries[name]
        return entry.signature if isinstance(entry, Function) else definitions.of_op_def(entry.signature)

    def read_ones(self) -> list[Function]:
        """The functions whose bodies have been read: no other can have been changed."""
        return [entry for entry in self._entries.values() if isinstance(entry, Function)]

    def untouched(self, name: str) -> Any:
        """The FunctionDef of a function that nobody has changed, None for another."""
        entry = self._entries[name]
        if isinstance(entry, Function):
            return None if entry.version else entry.proto
        return entry

    def add(self, function: Function) -> None:
        """Adds a function; ValueError if its name is taken."""
        if function.name in self._entries:
            raise ValueError("the library has a function '%s' already" % function.name)
        self._entries[function.name] = function
        self.version += 1

    def remove(self, name: str) -> None:
        """Removes a function."""
        version = self[name].version  # the module's version must not fall
        del self._entries[name]
        self.version += version + 1
