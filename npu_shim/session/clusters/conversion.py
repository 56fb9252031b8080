"""Compares a graph before and after one tf.cond has become an If (conditionals.py, moves.py), node by node.

    before   s = Switch(x, p)   a = Exp(s:1)   m = Merge(s:0, a)
    after    i = StatelessIf(p, x, then: a = Exp(arg0), else: arg0)   m = Identity(i)

A node of a branch is the node of its name, with its attributes. What it reads is what that one read, or what stands
behind it: through Switches of the If's predicate, and through Identities, that nobody feeds. What it waited for, it
waits for in its branch, or the whole If does. A node leaves the graph only for a branch, and a write exactly then.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import branches, order
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.arguments import controls, data, source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import Callee
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.session.clusters.conditionals import WRITES
from npu_shim.session.clusters.moves import View

IF, CALL = "StatelessIf", "StatefulPartitionedCall"
BRANCHES = ("else_branch", "then_branch")  # of the sides 0 and 1


def violations(before: tf.GraphDef, after: tf.GraphDef, run: Any) -> Iterator[str]:
    """Yields in words what is not as the conversion of one conditional leaves it.

    Args:
        before: the graph that it was given.
        after: the graph that it gave.
        run: has in `keep` the names of nodes or tensors that are fed, fetched or run.
    """
    was, now = graphdef.read(before).graph, None
    fed = frozenset(was[name] for name in map(source_of, run.keep) if name in was)
    view = View(was, branches.inside(was, fed), fed)
    try:
        now = graphdef.read(after)
        calls = [node for node in now.graph if node.name not in was and node.op in (IF, CALL)]
        bodies = _bodies(now, calls[0]) if len(calls) == 1 else None
    except (ConfigError, KeyError, ValueError) as error:  # what can be read in no way
        yield str(error)
        return
    if len(calls) != 1 or order.unordered(was):
        yield "%d conditionals are new, expected one" % len(calls)
    elif bodies is None:
        yield "'%s' does not hand its inputs to the two sides of an If" % calls[0].name
    else:
        yield from _functions_stay(before, after, calls[0], bodies)
        yield from _Conversion(view, now.graph, calls[0], bodies).problems()


def _bodies(module: Module, call: Node) -> list[Function] | None:
    """The functions of the sides 0 and 1, None if their arguments are not the inputs of the call in their order."""
    holder, given = call, ["arg%d" % number for number in range(len(call.inputs) - 1)]
    if call.op == CALL:
        function = _called(module, call, "f")
        nodes = [] if function is None else [node for node in function if node not in function.arguments]
        if function is None or [node.op for node in nodes] != ["If"]:
            return None
        (holder,) = nodes
        takes = [value.node for value in holder.inputs]
        runs = list(function.effects.values()) == [holder] and list(function.proto.signature.control_output) == ["if"]
        names = [argument.name for argument in takes[1:]]
        if takes != function.arguments or names != given or not runs or function.results or holder.device:
            return None
    bodies = [_called(module, holder, name) for name in BRANCHES]
    for body in bodies:
        taken = () if body is None else body.signature.inputs
        if body is None or [argument.name for argument in taken] != given:
            return None
        if tuple(argument.dtype for argument in taken) != holder.attrs.get("Tin"):
            return None
    return bodies  # type: ignore[return-value]


def _called(module: Module, node: Node, name: str) -> Function | None:
    """The function that an attribute names, None if there is no such one."""
    callee = node.attrs.get(name)
    known = isinstance(callee, Callee) and callee.name in module.functions
    return module.functions[callee.name] if known else None


def _functions_stay(before: Any, after: Any, call: Node, bodies: Sequence[Function]) -> Iterator[str]:
    count = len(before.library.function)
    if list(after.library.function[:count]) != list(before.library.function):
        yield "the functions of the library have changed"
    if (before.versions, list(before.library.gradient)) != (after.versions, list(after.library.gradient)):
        yield "the versions of the graph, or the gradients of its functions, have changed"
    expected = {body.name for body in bodies} | ({call.attrs["f"].name} if call.op == CALL else set())
    names = {function.signature.name for function in after.library.function[count:]}
    yield from ("function '%s' is new" % name for name in sorted(names - expected))


class _Conversion:
    """The two graphs, and the If between them."""

    def __init__(self, view: View, after: Graph, call: Node, bodies: Sequence[Function]) -> None:
        self._view, self._before, self._after = view, view.graph, after
        self._call, self._bodies = call, bodies
        self._predicate, *self._given = map(self._was, call.inputs)
        self._sides = {node.name: side for side, body in enumerate(bodies) for node in body.nodes.values()
                       if node not in body.arguments}  # fmt: skip
        self._writes = {name for name in self._sides if name in self._before and self._before[name].op in WRITES}
        self._needed: set[str] = set()  # what nodes of the branches waited for outside of them
        self._may: set[str] = set()  # what constants did

    def problems(self) -> Iterator[str]:
        """What is wrong."""
        new = [value for value in self._call.inputs if self._was(value) is None]
        if new:
            yield "'%s' takes '%s', which is new" % (self._call.name, new[0])
            return
        yield from self._nodes()
        yield from self._gone()
        for side, body in enumerate(self._bodies):
            yield from self._body(side, body)
        yield from self._waits()

    def _was(self, value: Value) -> Value | None:
        """A value of the graph as it was."""
        name = value.node.name
        return self._before[name].output(value.index) if name in self._before else None

    # the graph

    def _nodes(self) -> Iterator[str]:
        """What is wrong with the nodes of the new graph."""
        inside = [(value, self._view.along(value)) for value in (self._predicate, *self._given)]
        inside += [(node, self._view.inside.get(self._before.nodes.get(node.name))) for node in self._call.controls]
        for taken, branches_of in inside:
            if branches_of:
                yield "'%s' takes '%s', which runs on one side only" % (self._call.name, taken)
        for name, node in self._after.nodes.items():
            was = self._before.nodes.get(name)
            if was is None:
                if not self._is_expected(node):
                    yield "'%s' (%s) is new" % (name, node.op)
            elif was.proto != node.proto and not self._is_result(was, node) and not self._waits_for_call(was, node):
                yield "'%s' (%s) has changed" % (name, was.op)
        if order.unordered(self._after):
            yield "'%s' waits for itself" % self._call.name

    def _gone(self) -> Iterator[str]:
        """What is wrong with what has left the graph."""
        for name, was in self._before.nodes.items():
            if name not in self._after and (was in self._view.fed or (name not in self._sides and was.op != "Switch")):
                yield "'%s' (%s) is gone" % (name, was.op)
        yield from ("'%s' writes twice" % name for name in sorted(self._writes) if name in self._after)

    def _is_expected(self, node: Node) -> bool:
        """Whether an added node is the If, or tells the sides of its predicate."""
        scope, predicate = self._call.name, self._call.inputs[0]
        forms = {
            scope + "/switch": tf.NodeDef(op="Switch", input=[str(predicate)] * 2),
            scope + "/side0": tf.NodeDef(op="Identity", input=[scope + "/switch"]),
            scope + "/side1": tf.NodeDef(op="Identity", input=[scope + "/switch:1"]),
        }
        if node.name not in forms:
            return node is self._call
        form = forms[node.name]
        form.name, form.device, form.attr["T"].type = node.name, predicate.node.device, tf.bool.as_datatype_enum
        return bool(form == node.proto)

    def _is_result(self, was: Node, now: Node) -> bool:
        """Whether a Merge has become what the If gives."""
        if (was.op, now.op, self._call.op) != ("Merge", "Identity", IF) or len(was.inputs) != 2:
            return False
        values = {side: value for value in was.inputs for _, side in self._view.along(value)}
        form = tf.NodeDef(name=was.name, op="Identity", input=[self._call.name], device=was.device)
        form.input.extend(controls(was.proto))
        form.attr["T"].CopyFrom(was.proto.attr["T"])
        outputs = self._bodies[0].signature.outputs
        gives = [list(self._call.attrs.get("Tout", ())), [output.dtype for output in outputs]]
        right = form == now.proto and self._call.device == was.device and gives == [[was.attrs["T"]]] * 2
        return (
            right
            and set(values) == {0, 1}
            and all(self._gives(body, values[side], side) for side, body in enumerate(self._bodies))
        )

    def _gives(self, body: Function, value: Value, side: int) -> bool:
        return list(body.results) == ["value"] and self._is_read(body, value, body.results["value"], side)

    def _is_read(self, body: Function, value: Value, local: Value, side: int) -> bool:
        """Whether a value in a branch stands for one of the graph; notes what the Switch of that waits for."""
        in_body = local.node in body.arguments
        meaning = self._given[body.arguments.index(local.node)] if in_body else self._was(local)
        if meaning is None or meaning.node.op != "Const":
            self._needed |= {*self._awaited_for(value)}
        if self._sides.get(value.node.name) == side:
            return meaning is value
        return meaning in self._behind(value, side)

    def _waits_for_call(self, was: Node, now: Node) -> bool:
        """Whether a node that waited for a write waits for the call, on the side of the write."""
        moved = [control.name for control in was.controls if control.name in self._writes]
        sides = {"%s/side%d" % (self._call.name, self._sides[name]) for name in moved}
        rest = {control.name for control in was.controls}.difference(moved)
        form = tf.NodeDef()
        form.CopyFrom(was.proto)
        form.input[:] = [*data(was.proto), *controls(now.proto)]
        placed = all(self._call.device == self._before[name].device for name in moved)
        waits = {control.name for control in now.controls}
        return bool(moved) and form == now.proto and placed and waits == rest | sides | {self._call.name}

    # the branches

    def _body(self, side: int, body: Function) -> Iterator[str]:
        """What is wrong with the nodes of a branch."""
        nodes = [node for node in body if node not in body.arguments]
        wrote = {node.name for node in nodes if node.name in self._writes}
        if {node.name for node in body.effects.values()} != wrote or set(body.proto.signature.control_output) != wrote:
            yield "function '%s' does not run its writes" % body.name
        for node in nodes:
            was = self._before.nodes.get(node.name)
            if was is None or was.op != node.op or was in self._view.fed:
                yield "'%s' (%s) is in a branch, and was %s" % (node.name, node.op, "fed" if was else "not there")
                continue
            inside = {control.name for control in was.controls if control.name in body}
            waits = {control.name for control in node.controls}
            if waits != inside or node.device:
                yield "'%s' waits for %s, expected %s" % (node.name, sorted(waits), sorted(inside))
            outside = (control for control in was.controls if control.name not in inside)
            awaited = {name for control in outside for name in self._awaited(control)}
            self._may |= awaited
            if node.op == "Const":  # it need not wait
                if any(node.proto.attr.get(name) != was.proto.attr.get(name) for name in ("dtype", "value")):
                    yield "the constant '%s' has changed" % node.name
            else:
                self._needed |= awaited
                yield from self._differences(side, body, was, node)

    def _waits(self) -> Iterator[str]:
        """What is wrong with what the If waits for, once its branches have been seen."""
        waits = {control.name for control in self._call.controls}
        taken = waits | {value.node.name for value in self._call.inputs[1:]}
        for source in sorted(self._needed - taken):
            yield "'%s' does not wait for '%s'" % (self._call.name, source)
        for source in sorted(waits - self._needed - self._may):
            yield "'%s' waits for '%s'" % (self._call.name, source)

    def _differences(self, side: int, body: Function, was: Node, node: Node) -> Iterator[str]:
        attributes = [{k: v for k, v in proto.attr.items() if k != "_class"} for proto in (was.proto, node.proto)]
        if attributes[0] != attributes[1] or self._view.inside[was] != {(self._predicate, side)}:
            yield "'%s' (%s) has other attributes, or another side" % (node.name, node.op)
        if len(node.inputs) != len(was.inputs):
            yield "'%s' has other inputs" % node.name
        for value, local in zip(was.inputs, node.inputs):
            if not self._is_read(body, value, local, side):
                yield "'%s' reads '%s' for '%s'" % (node.name, local, value)

    def _awaited(self, source: Node) -> list[str]:
        """What who waits for a node waits for: a Switch that is left out hands on what it waits for."""
        if source.op != "Switch":
            return [source.name]
        return [source.inputs[0].node.name, *self._awaited_for(source.value)]

    def _awaited_for(self, value: Value) -> list[str]:
        """What who takes a value waits for beside it."""
        return [control.name for control in value.node.controls] if value.node.op == "Switch" else []

    def _behind(self, value: Value, side: int) -> Iterator[Value]:
        """A value, and those behind it that are the same on a side of the If."""
        while True:
            node = value.node
            if node.op != "Switch":
                yield value
            is_open = node.op == "Switch" and value.index == side
            decides = branches.decides(node, self._view.fed) if is_open else None
            if node in self._view.fed or not (node.op == "Identity" or decides is self._predicate):
                return
            value = node.inputs[0]
