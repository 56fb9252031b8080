"""Graphs of nodes and values, with use lists that are kept while nodes are added, changed and removed. No TensorFlow.

    x:Placeholder   y:Mul(x, x)   z:NoOp(^y)        x's output 0 is used twice by y; y's control output once by z

A node changes by its `set_...` methods and `attrs`, which mark it as touched; nodes that nobody touched are written as
the bytes that they were read from. Every change raises the graph's `version`, by which analyses know that they are old.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .attributes import Attributes

CONTROL = -1  # the index of a node's control output
INPUTS, CONTROLS, FIELDS = 1, 2, 4  # what of a node has been touched; its attributes know by themselves
DATA = 8  # not only control inputs or marks have been touched, or the node is new: it may give other tensors
MARKS = 16  # attributes with _ in front, which are about the node, not the op


class Value:
    """An output of a node; with index CONTROL, that the node has run.

    Attributes:
        node: the Node.
        index: the number of the output.
        users: nodes that take it -> how many of their inputs do; in the order in which they came.
    """

    __slots__ = ("index", "node", "users")

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index
        self.users: dict[Node, int] = {}

    def __str__(self) -> str:
        """As an input names it: "x", "x:1", "^x"."""
        if self.index == CONTROL:
            return "^" + self.node.name
        return "%s:%d" % (self.node.name, self.index) if self.index else self.node.name

    def __repr__(self) -> str:
        return "<%s>" % self

    def replace_by(self, other: Value) -> None:
        """Has the users of this value, and results of the graph, take another."""
        for user in list(self.users):
            if self.index == CONTROL:
                user.set_controls([other.node if source is self.node else source for source in user.controls])
            else:
                user.set_inputs([other if value is self else value for value in user.inputs])
        self.node.graph.replace_results(self, other)


_NO_VALUES: dict[int, Value] = {}  # of most nodes, which have one output; never filled


class Node:
    """An operation.

    Attributes:
        graph: the Graph that it is in.
        name, op: str.
        value: its first output; the others are asked of `output`.
        inputs: its data inputs, Values, in order.
        controls: the Nodes that it waits for.
        proto: the NodeDef that it was read from, without what was touched since; None for a new node.
        touched: INPUTS, CONTROLS and FIELDS, whichever differ from the proto; DATA and MARKS.
        made_by: name of the pass that made it or touched it last, "" for none.
        origin: name of the node that it came from, "" for one that was there from the beginning.
    """

    __slots__ = ("_attrs", "_device", "_others", "controls", "graph", "inputs", "made_by", "name", "op", "origin",
                 "proto", "touched", "value")  # fmt: skip

    def __init__(self, graph: Graph, name: str, op: str, proto: Any = None) -> None:
        self.graph, self.name, self.op, self.proto = graph, name, op, proto
        self.inputs: tuple[Value, ...] = ()
        self.controls: tuple[Node, ...] = ()
        self.value, self._others = Value(self, 0), _NO_VALUES
        self._attrs: Attributes | None = None
        self._device: str | None = None
        self.touched, self.made_by, self.origin = 0, "", ""

    def __repr__(self) -> str:
        return "<%s:%s>" % (self.name, self.op)

    def output(self, index: int = 0) -> Value:
        """One of its outputs; CONTROL for the one that control inputs name."""
        if index == 0:
            return self.value
        if index not in self._others:
            self._others = {**self._others, index: Value(self, index)}
        return self._others[index]

    @property
    def attrs(self) -> Attributes:
        """Its attributes."""
        if self._attrs is None:
            self._attrs = Attributes(self, self.proto)
        return self._attrs

    @property
    def device(self) -> str:
        """The device that it asks for, "" for none."""
        if self._device is None:
            self._device = self.proto.device if self.proto is not None else ""
        return self._device

    @property
    def is_untouched(self) -> bool:
        """Whether it is what its proto says."""
        if self.proto is None or self.touched & ~DATA:
            return False
        return self._attrs is None or not self._attrs.are_changed

    def values(self) -> Iterable[Value]:
        """Its first output, and the others that have been asked for, CONTROL among them."""
        return (self.value, *self._others.values()) if self._others else (self.value,)

    def outputs(self) -> list[Value]:
        """Its outputs that have users, by index, CONTROL first."""
        return sorted((value for value in self.values() if value.users), key=lambda value: value.index)

    def sources(self) -> Iterator[Node]:
        """The nodes behind its data inputs, then those that it waits for; one may come twice."""
        return itertools.chain([value.node for value in self.inputs], self.controls)

    def users(self) -> Iterator[Node]:
        """The nodes that take one of its outputs or wait for it; one may come twice."""
        if not self._others:
            return iter(self.value.users)
        return itertools.chain.from_iterable(value.users for value in self.values())

    def set_inputs(self, values: Sequence[Value]) -> None:
        """Replaces its data inputs."""
        _exchange(self, self.inputs, values)
        self.inputs = tuple(values)
        self.touch(INPUTS)

    def set_input(self, number: int, value: Value) -> None:
        """Replaces one of its data inputs."""
        self.set_inputs([*self.inputs[:number], value, *self.inputs[number + 1 :]])

    def set_controls(self, nodes: Iterable[Node]) -> None:
        """Replaces the nodes that it waits for; each counts once."""
        nodes = tuple(dict.fromkeys(nodes))
        _exchange(self, [node.output(CONTROL) for node in self.controls], [node.output(CONTROL) for node in nodes])
        self.controls = nodes
        self.touch(CONTROLS)

    def set_op(self, op: str) -> None:
        """Replaces its op."""
        self.op = op
        self.touch(FIELDS)
        self.graph.renamed_outputs(self)

    def set_device(self, device: str) -> None:
        """Replaces the device that it asks for."""
        self._device = device
        self.touch(FIELDS)

    def turn_into(self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> None:
        """Makes it a node of another op; its device, what it waits for, and what waits for it, stay."""
        device = self.device
        self.proto = self._attrs = None
        self.set_device(device)
        self.set_op(op)
        self.set_inputs(inputs)
        self.touch(CONTROLS)
        for name, value in attrs.items():
            self.attrs[name] = value

    def redefine(self, proto: Any) -> None:
        """Makes it what a NodeDef of its name says, but for its inputs; see `graphdef.become`."""
        self.op, self.proto, self._attrs, self._device = proto.op, proto, None, None
        self.touch(0)
        self.touched = DATA
        self.graph.renamed_outputs(self)

    def touch(self, parts: int) -> None:
        """Notes a change, and the pass that makes it."""
        self.touched |= parts if parts in (CONTROLS, MARKS) else parts | DATA
        self.made_by = self.graph.module.author
        self.graph.version += 1

    def touch_attribute(self, name: str) -> None:
        """Notes a change of an attribute."""
        self.touch(MARKS if name[0] == "_" else 0)


def _exchange(user: Node, old: Iterable[Value], new: Iterable[Value]) -> None:
    """Keeps use lists while a node's inputs are replaced; a use that stays keeps its place."""
    for value in new:
        value.users[user] = value.users.get(user, 0) + 1
    for value in old:
        if value.users[user] == 1:
            del value.users[user]
        else:
            value.users[user] -= 1


class Graph:
    """Nodes in the order in which they are written.

    Attributes:
        module: the Module that it belongs to.
        arguments: of a function's body: the nodes that stand for its arguments, in order.
        results: what is fetched or run, or what a function returns: name -> Value.
        nodes: name -> Node, in order; not to be changed.
        version: a number that rises with every change.
        properties: what analyses have found; see analysis/cache.py.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.arguments: list[Node] = []
        self.results: dict[str, Value] = {}
        self.nodes: dict[str, Node] = {}
        self.version = 0
        self.properties: dict[Any, Any] = {}

    def __iter__(self) -> Iterator[Node]:
        """Its nodes, in order; the graph may change meanwhile."""
        return iter(list(self.nodes.values()))

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def value(self, text: str) -> Value:
        """The value that an input names: "x", "x:1", "^x"; KeyError if there is no such node."""
        name, _, number = text.partition(":")
        return self[name[1:]].output(CONTROL) if text[0] == "^" else self[name].output(int(number or 0))

    def free_name(self, name: str) -> str:
        """A name that no node has: `name`, or `name` with underscores behind it."""
        while name in self:
            name += "_"
        return name

    def add(
        self,
        name: str,
        op: str,
        inputs: Sequence[Value] = (),
        controls: Iterable[Node] = (),
        attrs: dict[str, Any] | None = None,
        device: str = "",
        origin: Node | None = None,
    ) -> Node:
        """Adds a node, behind all others.

        Args:
            name: one that is free.
            op: as of Node; so are the next four.
            inputs: Values.
            controls: Nodes.
            attrs: name -> value.
            device: "" for none.
            origin: the node that it is made for, whose name is remembered.

        Raises:
            ValueError: the name is taken.
        """
        node = Node(self, name, op)
        self.insert(node, origin)
        node.set_inputs(inputs)
        node.set_controls(controls)
        node.set_device(device)
        for key, value in (attrs or {}).items():
            node.attrs[key] = value
        return node

    def insert(self, node: Node, origin: Node | None = None) -> None:
        """Puts a node that is not yet in the graph into it; `origin` and errors as for `add`."""
        if node.name in self:
            raise ValueError("the graph has a node '%s' already" % node.name)
        self.nodes[node.name] = node
        node.origin = "" if origin is None else origin.origin or origin.name
        node.touch(FIELDS)

    def remove(self, nodes: Iterable[Node]) -> None:
        """Removes nodes that no node outside of them uses, and that are no result.

        Raises:
            ValueError: another node, or somebody outside of the graph, uses one of them.
        """
        gone = dict.fromkeys(nodes)
        for node in gone:
            users = [user for user in node.users() if user not in gone]
            if users:
                raise ValueError("node '%s' is used by '%s'" % (node.name, users[0].name))
        for name, value in self.results.items():
            if value.node in gone:
                raise ValueError("node '%s' is needed for the result '%s'" % (value.node.name, name))
        for node in gone:
            node.set_inputs(())
            node.set_controls(())
            del self.nodes[node.name]
        self.version += bool(gone)

    def keep(self, nodes: Iterable[Node]) -> None:
        """Removes all other nodes; as `remove`, and KeyError for a node that is not in the graph."""
        kept = set(nodes)
        self.remove([node for node in self.nodes.values() if node not in kept])

    def rename(self, names: Mapping[Node, str]) -> None:
        """Gives nodes other names; each keeps its place. ValueError if a name is taken."""
        for name in names.values():
            if name in self:
                raise ValueError("the graph has a node '%s' already" % name)
        nodes = list(self.nodes.values())
        for node, name in names.items():
            node.name = name
            node.touch(FIELDS)
            for user in node.users():
                user.touch(INPUTS | CONTROLS)
        self.nodes = {node.name: node for node in nodes}

    def sort(self) -> None:
        """Puts the nodes in the order of their names, so that equal graphs have equal bytes."""
        names = sorted(self.nodes)
        if names != list(self.nodes):
            self.nodes = {name: self.nodes[name] for name in names}
            self.version += 1

    def release(self) -> None:
        """Empties a graph that nobody uses any more: Python then frees its nodes, which refer to each other, at once.

        Its cyclic collector would take a tenth of what preparing a step of 20,000 nodes costs.
        """
        for node in self.nodes.values():
            node.inputs, node.controls = (), ()
            node._others, node._attrs = _NO_VALUES, None
            del node.value
        for held in (self.nodes, self.properties, self.results, self.arguments):
            held.clear()

    def renamed_outputs(self, node: Node) -> None:
        """Is told that a node has another op: in a function's body, inputs name outputs as the op does."""

    def replace_results(self, old: Value, new: Value) -> None:
        """Has the results that are one value be another."""
        for name, value in self.results.items():
            if value is old:
                self.results[name] = new
                self.version += 1
