"""Moves the nodes between Switch and its targets into the branches of one functional If.

    s = Switch(x, p)  a = Exp(s:1)  m = Merge(s:0, a)   ->   i = StatelessIf(p, x, then=Exp, else=x)  m = Identity(i)
    s = Switch(w, p)  a = Assign(s:1, 0)  NoOp(^a)      ->   c = Call(p, w)  NoOp(^c, ^side)

`side` runs on that side only, as `a` did. Nodes that the rest of the branch needs too are duplicated.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Container, Iterator, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import branches, order
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import Callee, DType
from npu_shim.rewriter.ir.definitions import Argument, Definition, expanded, registered
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Function

MUST_COMPILE = "_XlaMustCompile"
PLUMBING = ("Const", "Identity", "NoOp", "ReadVariableOp", "Snapshot")
SIDES = (1, 0)  # then, else
BOOL = DType(tf.bool.as_datatype_enum)


class View(NamedTuple):
    """A graph with conditionals.

    Attributes:
        graph: the Graph.
        inside: node -> the branches that it is in, in topological order.
        fed: the nodes that may be fed.
    """

    graph: Graph
    inside: Mapping[Node, branches.Inside]
    fed: Container[Node]

    def along(self, value: Value) -> branches.Inside:
        """The branches that a value is in."""
        return branches.along(value, self.inside, self.fed)

    def constant(self, value: Value) -> Node | None:
        """The Const behind a value's Identity and Switch nodes, or None; also None where one of them may be fed."""
        node: Node = behind(value, ("Identity", "Switch"), self.fed).node
        return node if node.op == "Const" and node not in self.fed else None


class Group(NamedTuple):
    """The nodes that become one node.

    Attributes:
        predicate: the value that decides.
        updates: whether variables are written.
        targets: the ops that write to variables, or one Merge.
    """

    predicate: Value
    updates: bool
    targets: list[Node]


class Move:
    """One group's move."""

    def __init__(self, view: View, group: Group) -> None:
        self._view, self._group = view, group
        inside, targets = view.inside, frozenset(group.targets)
        reached = order.ancestors(group.targets, lambda node: node in targets or bool(inside[node]))
        self._moved = dict.fromkeys(node for node in inside if node in reached and inside[node])
        self._switches = {
            source for node in (*self._moved, *targets) for source in node.sources() if source.op == "Switch"
        }
        self._arguments: dict[Value, tuple[int, DType]] = {}  # what the functions take -> (number, dtype)
        self._waits: dict[Node, None] = {}  # control inputs, in their order

    def is_whole(self, writes: Container[str]) -> bool:
        """Whether the move takes along no other op of the types `writes`, and no variable of another device."""
        written = {node for node in self._moved if node.op in writes}
        devices = {node.device for node in self._moved if tf.resource.as_datatype_enum in input_dtypes(node)}
        if not self._group.updates:
            return not devices
        return devices == {self._group.targets[0].device} and written == set(self._group.targets)

    def size(self) -> float:
        """The number of ops that move: without plumbing, but with each Switch, which costs as much as an op.

        Infinite for a Merge of values, which is always worth moving: it would cut a cluster in two.
        """
        if not self._group.updates:
            return math.inf
        return len(self._switches) + sum(node.op not in PLUMBING for node in self._moved)

    def apply(self) -> None:
        """Moves the group; nodes that may be fed stay."""
        graph = self._view.graph
        name = graph.free_name(self._group.targets[0].name + "/If")
        sides = [self._body(side) for side in SIDES]
        gone = [*self._moved, *self._switches]
        left = self._left_out(gone)
        if self._group.updates:
            self._wait_for(self._call(name, sides), left)
        else:
            self._conditional(name, sides)
        graph.remove(left)

    def _left_out(self, gone):
        """Those of the nodes that no other node needs, nor who feeds or fetches."""
        targets = frozenset(self._group.targets)
        leaving = frozenset(gone)
        rest = [node for node in self._view.graph if node not in leaving or node in self._view.fed]
        needed = order.ancestors(rest, lambda node: node not in targets)  # these take the results of the If
        return dict.fromkeys(node for node in gone if node not in needed or node in targets)

    def _body(self, side):
        """The function of a side; its arguments are only known after both sides."""
        body = Function(self._view.graph.module, "", Definition("", (), (), {}))
        for node in self._moved:
            if self._side(self._view.inside[node]) == side:
                self._copy(body, node)
        if not self._group.updates:
            merge = self._group.targets[0]
            value = next(value for value in merge.inputs if self._side(self._view.along(value)) == side)
            body.results["value"] = self._local(body, value, merge.attrs["T"])
        return body

    def _side(self, inside):
        return next(iter(inside))[1]

    def _copy(self, body, node):
        inputs = [self._local(body, value, dtype) for value, dtype in zip(node.inputs, input_dtypes(node))]
        attrs = {name: value for name, value in node.attrs.items() if name != "_class"}
        controls = [body[source.name] for source in node.controls if source in self._moved]
        copy = body.add(node.name, node.op, inputs, controls, attrs)
        self._waits.update(dict.fromkeys(wait for source in node.controls for wait in self._awaited(source)))
        if node in self._group.targets:
            body.effects[node.name] = copy

    def _awaited(self, source) -> Iterator[Node]:
        """What the If waits for in place of a control input of a node that moves."""
        if source.op == "Switch":
            yield source.inputs[0].node
            yield from source.controls
        elif source not in self._moved:
            yield source

    def _local(self, body, value, dtype):
        """Returns a value inside a branch; one from outside becomes an argument."""
        node, constant = value.node, self._view.constant(value)
        if node in self._moved:
            return body[node.name].output(value.index)
        if constant is not None:
            if constant.name not in body:
                body.add(constant.name, "Const", attrs={name: constant.attrs[name] for name in ("dtype", "value")})
            return body[constant.name].value
        if node.op == "Switch":
            self._waits.update(dict.fromkeys(node.controls))
            value = node.inputs[0]
        return self._argument(body, *self._arguments.setdefault(value, (len(self._arguments), DType(dtype)))).value

    def _parameters(self, body):
        return [self._argument(body, number, dtype) for number, dtype in self._arguments.values()]

    def _argument(self, body, number, dtype):
        name = "arg%d" % number
        return body[name] if name in body else body.add(name, graphdef.ARGUMENT, attrs={"T": dtype})

    def _conditional(self, name, sides):
        """Adds the If of a Merge; the Merge becomes an Identity and keeps its name."""
        merge = self._group.targets[0]
        attrs = self._attrs(sides, [merge.attrs["T"]])
        call = merge.graph.add(name, "StatelessIf", self._taken(), self._waits, attrs, merge.device)
        proto = tf.NodeDef(name=merge.name, op="Identity", input=[call.name], device=merge.device)
        proto.input.extend("^" + control.name for control in merge.controls)
        proto.attr["T"].type = merge.attrs["T"]
        graphdef.become(merge, proto)

    def _taken(self):
        return [self._group.predicate, *self._arguments]

    def _call(self, name, sides):
        """Adds the call of a function that contains the If of updates."""
        graph = self._view.graph
        body = Function(graph.module, "", Definition("", (), (), {}))
        arguments = [body.add("predicate", graphdef.ARGUMENT, attrs={"T": BOOL})]
        arguments += self._parameters(body)
        body.effects["if"] = body.add("if", "If", [node.value for node in arguments], attrs=self._attrs(sides, []))
        function = _added(body, arguments, ())
        attrs = {"Tin": (BOOL, *self._dtypes()), "Tout": (), "f": function, MUST_COMPILE: True}
        device = self._group.targets[0].device
        return graph.add(name, "StatefulPartitionedCall", self._taken(), self._waits, attrs, device)

    def _wait_for(self, call, left):
        """Makes the nodes that waited for an update wait for the call, on the update's side."""
        sides_of: dict[Node, set[int]] = {}
        for target in self._group.targets:
            for user in target.output(CONTROL).users.keys() - left.keys():
                sides_of.setdefault(user, set()).add(self._side(self._view.inside[target]))
        markers = self._markers(call, sorted(set().union(*sides_of.values())))
        for user, sides in sides_of.items():
            rest = [source for source in user.controls if source not in self._group.targets]
            user.set_controls([*rest, call, *map(markers.get, sorted(sides))])

    def _markers(self, call, sides):
        """Adds a node for each of these sides that runs on that side only."""
        graph, predicate = self._view.graph, self._group.predicate
        given = {"attrs": {"T": BOOL}, "device": predicate.node.device}
        switch = graph.add(call.name + "/switch", "Switch", [predicate] * 2, **given) if sides else None
        return {
            side: graph.add("%s/side%d" % (call.name, side), "Identity", [switch.output(side)], **given)
            for side in sides
        }

    def _attrs(self, sides, gives):
        """The attributes of an If, whose branches are completed and added to the library."""
        outputs = tuple(Argument("value", dtype) for dtype in gives)
        attrs = {"Tcond": BOOL, "Tin": self._dtypes(), "Tout": tuple(gives)}
        for name, body in zip(("then_branch", "else_branch"), sides):
            attrs[name] = _added(body, self._parameters(body), outputs)
        return attrs

    def _dtypes(self):
        return tuple(dtype for _, dtype in self._arguments.values())


def input_dtypes(node: Node) -> list[int]:
    """The dtypes of a node's data inputs."""
    definition: Any = registered(node.op)
    return [dtype for _, dtype in expanded(definition.inputs, node, definition)]


def _added(body, arguments, outputs):
    """Completes a function, and adds it to the library by a name that says what is in it; returns its Callee."""
    inputs = tuple(Argument(node.name, node.attrs["T"]) for node in arguments)
    body.arguments, functions = arguments, body.module.functions
    body.signature = Definition("", inputs, outputs, {}, bool(body.effects))
    written = graphdef.write_function(body, tf.GraphDef().library.function.add())
    body.name = "npu_shim_if_" + hashlib.sha256(written.SerializeToString(deterministic=True)).hexdigest()[:16]
    body.signature = body.signature._replace(name=body.name)
    if body.name not in functions:
        functions.add(body)
    return Callee(body.name)
