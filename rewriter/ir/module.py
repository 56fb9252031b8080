"""A graph and the functions that its nodes call."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, NamedTuple

from . import definitions
from .definitions import Definition
from .graph import DATA, INPUTS, Graph, Node


class Provenance(NamedTuple):
    """Where a node comes from: the pass that made it or touched it last, and the node that it was made for, or ""."""

    made_by: str
    origin: str = ""

    def __str__(self) -> str:
        """In words."""
        return "by pass '%s'%s" % (self.made_by, ", for '%s'" % self.origin if self.origin else "")


class Function(Graph):
    """A function's body, which reads like a graph: `arguments` are nodes of op _Arg, `results` what it returns.

    Attributes:
        name: str.
        signature: its Definition.
        effects: name -> Node, the nodes that run though no result needs them (control results).
        attributes: name -> Python value of the function's own attributes; of a new one, others stay in the proto.
        proto: the FunctionDef that it was read from, None for a new one.
    """

    def __init__(self, module: Module, name: str, signature: Definition, proto: Any = None) -> None:
        super().__init__(module)
        self.name, self.signature, self.proto = name, signature, proto
        self.effects: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}

    def renamed_outputs(self, node: Node) -> None:
        """Has the inputs that name a node's outputs written anew."""
        for user in node.users():
            user.touched |= INPUTS


class Module:
    """A graph and its function library, read from a GraphDef when they are first asked for.

    Attributes:
        source: the GraphDef that the module is, or was before the changes that `version` counts; None for no GraphDef.
        author: name of the pass that is running, for `Node.made_by`.
    """

    def __init__(self, known: Callable[[str], Definition | None] = definitions.registered) -> None:
        self.source: Any = None
        self.author = ""
        self._known = known
        self._graph: Graph | None = Graph(self)
        self._functions = Library()
        self._read: Callable[[Module, Any], tuple[Graph, Library]] | None = None
        self._carried = _Carried({}, {}, None, "")
        self._before = self._written = 0  # versions: of the graphs that have been replaced; of `source`
        self._ops: tuple[int, frozenset[str]] = (-1, frozenset())  # of which version, what `ops` returned

    @property
    def graph(self) -> Graph:
        """The graph."""
        if self._graph is None:
            self._graph, self._functions = self._read(self, self.source)  # type: ignore[misc]  # set with the source
            self._carried.restore(self._graph)
        return self._graph

    @property
    def functions(self) -> Library:
        """The library."""
        self.graph  # noqa: B018  reads it
        return self._functions

    @property
    def version(self) -> int:
        """A number that rises with every change."""
        if self._graph is None:
            return self._before
        return self._before + self._functions.version + sum(graph.version for graph in self.graphs())

    @property
    def is_written(self) -> bool:
        """Whether `source` is what the module is now."""
        return self.source is not None and self._written == self.version

    def graphs(self) -> Iterator[Graph]:
        """The graph, then the bodies of the functions that have been read."""
        yield self.graph
        yield from self.functions.read_ones()

    def definition(self, op: str) -> Definition | None:
        """The Definition of an op or of a function of the library, None if it is neither."""
        if op in self.functions:
            return self.functions.signature(op)
        return self._known(op)

    def graphs_with(self, is_asked: Callable[[str], bool]) -> Iterator[Graph]:
        """The graph, and the bodies of functions with a node of such an op; none if there is no such node at all.

        No other body is read for that.
        """
        if any(map(is_asked, self.ops())):
            yield self.graph
            yield from (self.functions[name] for name in self.functions if any(map(is_asked, self.functions.ops(name))))

    def ops(self) -> frozenset[str]:
        """The ops of the nodes of the graph and of all functions; nothing is read for that."""
        version, ops = self._ops
        if version != self.version:
            if self._graph is None:
                ops = frozenset(_ops_of(self.source.node)).union(*map(_ops_in, self.source.library.function))
            else:
                ops = frozenset(_ops_of(self._graph.nodes.values())).union(*map(_ops_in, self._functions.entries()))
            self._ops = self.version, ops
        return ops

    def results(self) -> dict[str, str]:
        """The graph's results as inputs name them; it is not read for that."""
        if self._graph is None:
            return self._carried.results
        return {name: str(value) for name, value in self._graph.results.items()}

    def wrote(self, source: Any) -> None:
        """Notes the GraphDef that the module is now."""
        self.source, self._written = source, self.version

    def release(self) -> None:
        """Empties the graphs of a module that nobody uses any more, as `Graph.release`; `source` stays."""
        for graph in self.graphs() if self._graph is not None else ():
            graph.release()

    def replace(self, source: Any, read: Callable[[Module, Any], tuple[Graph, Library]]) -> None:
        """Makes the module another GraphDef; results, and what is known of where nodes come from, stay by their names.

        Args:
            source: tf.compat.v1.GraphDef; it must not change while the module is in use.
            read: makes a graph and a library of it.
        """
        self._before = self.version + 1
        if self._graph is not None:
            self._carried = _Carried.of(self._graph, self.author)
            self.release()
        self._graph, self._read = None, read
        self.wrote(source)


def _ops_of(nodes: Iterable[Any]) -> set[str]:
    return {node.op for node in nodes}


def _ops_in(entry: Any) -> set[str]:
    """The ops in a Function or FunctionDef."""
    return _ops_of(entry.nodes.values() if isinstance(entry, Function) else entry.node_def)


class _Carried(NamedTuple):
    """What a graph's successor takes over.

    Attributes:
        results: by name.
        provenance: of nodes by name.
        known: names of the nodes that were there; None if nobody has read them.
        author: name of the pass that made the successor.
    """

    results: dict[str, str]
    provenance: dict[str, Provenance]
    known: frozenset[str] | None
    author: str

    @classmethod
    def of(cls, graph: Graph, author: str) -> _Carried:
        results = {name: str(value) for name, value in graph.results.items()}
        provenance = {node.name: Provenance(node.made_by, node.origin) for node in graph if node.made_by}
        return cls(results, provenance, frozenset(graph.nodes), author)

    def restore(self, graph: Graph) -> None:
        graph.results = {name: graph.value(text) for name, text in self.results.items()}
        provenance = self.provenance
        if self.known is not None and self.author:
            new = graph.nodes.keys() - self.known
            provenance = {**provenance, **dict.fromkeys(new, Provenance(self.author))}
        for name, (made_by, origin) in provenance.items():
            if name in graph:
                node = graph[name]
                node.made_by, node.origin, node.touched = made_by, origin, DATA


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

    def ops(self, name: str) -> set[str]:
        """The ops of the nodes of a function, whose body is not read for that."""
        return _ops_in(self._entries[name])

    def entries(self) -> list[Any]:
        """Of each function the Function if its body has been read, else the FunctionDef."""
        return list(self._entries.values())

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
