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

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import controls, data, output_of, source_of
from npu_shim.rewriter.graphdef.functions import Outputs
from npu_shim.session.clusters.branches import NONE, Branches, topological_order
from npu_shim.session.clusters.conditionals import WRITES

IF, CALL = "StatelessIf", "StatefulPartitionedCall"
BRANCHES = ("else_branch", "then_branch")  # of the sides 0 and 1


def violations(before: tf.GraphDef, after: tf.GraphDef, keep: frozenset[str]) -> Iterator[str]:
    """Yields in words what is not as the conversion of one conditional leaves it.

    Args:
        before: the graph that it was given.
        after: the graph that it gave.
        keep: names of nodes that are fed, fetched or run.
    """
    view = Branches(before, keep)
    added = [node for node in after.node if node.name not in view.nodes]
    calls = [node for node in added if node.op in (IF, CALL)]
    library = {function.signature.name: function for function in after.library.function}
    if len(calls) != 1 or len(view.nodes) < len(before.node):
        yield "%d conditionals are new, expected one" % len(calls)
        return
    bodies = _bodies(calls[0], library)
    if bodies is None:
        yield "'%s' does not hand its inputs to the two sides of an If" % calls[0].name
        return
    compared = _Conversion(view, after, calls[0], bodies)
    yield from _functions_stay(before, after, calls[0], bodies)
    yield from compared.nodes()
    yield from compared.gone()
    for side, body in enumerate(bodies):
        yield from compared.body(side, body)
    yield from compared.waits()


def _bodies(call: Any, library: dict[str, Any]) -> list[Any] | None:
    """The functions of the sides 0 and 1, None if their arguments are not the inputs of the call in their order."""
    holder, given = call, ["arg%d" % k for k in range(len(data(call)) - 1)]
    if call.op == CALL:
        function = library.get(call.attr["f"].func.name)
        if function is None or [node.op for node in function.node_def] != ["If"]:
            return None
        holder = function.node_def[0]
        takes = [argument.name for argument in function.signature.input_arg]
        runs = list(function.control_ret.values()) == [holder.name] == list(function.signature.control_output)
        if list(holder.input) != takes or takes[1:] != given or not runs or function.ret or holder.device:
            return None
    bodies = [library.get(holder.attr[name].func.name) for name in BRANCHES]
    if any(body is None or [argument.name for argument in body.signature.input_arg] != given for body in bodies):
        return None
    takes = [[argument.type for argument in body.signature.input_arg] for body in bodies]
    return bodies if takes == [list(holder.attr["Tin"].list.type)] * 2 else None


def _functions_stay(before: Any, after: Any, call: Any, bodies: Sequence[Any]) -> Iterator[str]:
    count = len(before.library.function)
    if list(after.library.function[:count]) != list(before.library.function):
        yield "the functions of the library have changed"
    if (before.versions, list(before.library.gradient)) != (after.versions, list(after.library.gradient)):
        yield "the versions of the graph, or the gradients of its functions, have changed"
    expected = {body.signature.name for body in bodies} | ({call.attr["f"].func.name} if call.op == CALL else set())
    names = {function.signature.name for function in after.library.function[count:]}
    yield from ("function '%s' is new" % name for name in sorted(names - expected))


class _Conversion:
    """The two graphs, and the If between them."""

    def __init__(self, view: Branches, after: Any, call: Any, bodies: Sequence[Any]) -> None:
        self._view, self._call, self._bodies = view, call, bodies
        self._after, self._count = {node.name: node for node in after.node}, len(after.node)
        self._predicate, *self._given = data(call)
        self._waits = {*map(source_of, controls(call)), *map(source_of, self._given)}
        self._sides = {node.name: side for side, body in enumerate(bodies) for node in body.node_def}
        self._writes = {name for name in self._sides if name in view.nodes and view.nodes[name].op in WRITES}
        self._outputs = Outputs({})
        self._needed: set[str] = set()  # what nodes of the branches waited for outside of them
        self._may: set[str] = set()  # what constants did

    # the graph

    def nodes(self) -> Iterator[str]:
        """What is wrong with the nodes of the new graph."""
        if len(self._after) < self._count:
            yield "two nodes have one name"
        for text in self._call.input:
            if self._view.along(text) != NONE:
                yield "'%s' takes '%s', which runs on one side only" % (self._call.name, text)
        for name, node in self._after.items():
            was = self._view.nodes.get(name)
            if was is None:
                if not self._is_expected(node):
                    yield "'%s' (%s) is new" % (name, node.op)
            elif was != node and not self._is_result(was, node) and not self._waits_for_call(was, node):
                yield "'%s' (%s) has changed" % (name, was.op)
        complete = all(source_of(text) in self._after for node in self._after.values() for text in node.input)
        if complete and len(topological_order(self._after)) < len(self._after):
            yield "'%s' waits for itself" % self._call.name

    def gone(self) -> Iterator[str]:
        """What is wrong with what has left the graph."""
        for name, node in self._after.items():
            missing = [text for text in node.input if source_of(text) not in self._after]
            yield from ("'%s' reads '%s', which is gone" % (name, text) for text in missing)
        for name in self._view.nodes.keys() - self._after.keys():
            was = self._view.nodes[name]
            if name in self._view.fed or (name not in self._sides and was.op != "Switch"):
                yield "'%s' (%s) is gone" % (name, was.op)
        yield from ("'%s' writes twice" % name for name in sorted(self._writes & self._after.keys()))

    def _is_expected(self, node: Any) -> bool:
        """Whether an added node is the If, or tells the sides of its predicate."""
        scope, device = self._call.name, self._view.nodes[source_of(self._predicate)].device
        forms = {
            scope + "/switch": tf.NodeDef(op="Switch", input=[self._predicate] * 2),
            scope + "/side0": tf.NodeDef(op="Identity", input=[scope + "/switch:0"]),
            scope + "/side1": tf.NodeDef(op="Identity", input=[scope + "/switch:1"]),
        }
        if node.name not in forms:
            return node is self._after[scope]
        form = forms[node.name]
        form.name, form.device, form.attr["T"].type = node.name, device, tf.bool.as_datatype_enum
        return bool(form == node)

    def _is_result(self, was: Any, now: Any) -> bool:
        """Whether a Merge has become what the If gives."""
        if (was.op, now.op, self._call.op) != ("Merge", "Identity", IF) or len(data(was)) != 2:
            return False
        texts = {side: text for text in data(was) for predicate, side in self._view.along(text)}
        form = tf.NodeDef(name=was.name, op="Identity", input=[self._call.name, *controls(was)], device=was.device)
        form.attr["T"].CopyFrom(was.attr["T"])
        gives = [
            list(self._call.attr["Tout"].list.type),
            [argument.type for argument in self._bodies[0].signature.output_arg],
        ]
        right = form == now and self._call.device == was.device and gives == [[was.attr["T"].type]] * 2
        return (
            right
            and set(texts) == {0, 1}
            and all(self._gives(body, texts[side], side) for side, body in enumerate(self._bodies))
        )

    def _gives(self, body: Any, text: str, side: int) -> bool:
        return list(body.ret) == ["value"] and self._is_read(body, text, body.ret["value"], side)

    def _is_read(self, body: Any, text: str, local: str, side: int) -> bool:
        """Whether a name in a branch stands for a tensor of the graph; notes what the tensor's Switch waits for."""
        meaning = self._meaning(body, local)
        if meaning is None or self._view.nodes[meaning[0]].op != "Const":
            self._needed |= {*self._awaited(text)}
        if self._sides.get(source_of(text)) == side:
            return meaning == output_of(text)
        return meaning in self._behind(text, side)

    def _waits_for_call(self, was: Any, now: Any) -> bool:
        """Whether a node that waited for a write waits for the call, on the side of the write."""
        moved = [source_of(text) for text in controls(was) if source_of(text) in self._writes]
        sides = {"^%s/side%d" % (self._call.name, self._sides[name]) for name in moved}
        rest = {text for text in controls(was) if source_of(text) not in moved}
        form = tf.NodeDef()
        form.CopyFrom(was)
        del form.input[:]
        form.input.extend([*data(was), *controls(now)])
        placed = all(self._call.device == self._view.nodes[name].device for name in moved)
        return bool(moved) and form == now and placed and set(controls(now)) == rest | sides | {"^" + self._call.name}

    # the branches

    def body(self, side: int, body: Any) -> Iterator[str]:
        """What is wrong with the nodes of a branch."""
        wrote = {node.name for node in body.node_def if node.name in self._writes}
        if set(body.control_ret.values()) != wrote or set(body.signature.control_output) != wrote:
            yield "function '%s' does not run its writes" % body.signature.name
        if len({node.name for node in body.node_def}) < len(body.node_def):
            yield "two nodes of function '%s' have one name" % body.signature.name
        here = {node.name for node in body.node_def}
        for node in body.node_def:
            was = self._view.nodes.get(node.name)
            if was is None or was.op != node.op or node.name in self._view.fed:
                yield "'%s' (%s) is in a branch, and was %s" % (node.name, node.op, "fed" if was else "not there")
                continue
            inside = {"^" + source_of(text) for text in controls(was)} & {"^" + name for name in here}
            if set(controls(node)) != inside or node.device:
                yield "'%s' waits for %s, expected %s" % (node.name, sorted(controls(node)), sorted(inside))
            awaited = {source for text in controls(was) if text not in inside for source in self._awaited(text)}
            self._may |= awaited
            if node.op == "Const":  # it need not wait
                if any(node.attr[name] != was.attr[name] for name in ("dtype", "value")):
                    yield "the constant '%s' has changed" % node.name
            else:
                self._needed |= awaited
                yield from self._differences(side, body, was, node)

    def waits(self) -> Iterator[str]:
        """What is wrong with what the If waits for, once its branches have been seen."""
        for source in sorted(self._needed - self._waits):
            yield "'%s' does not wait for '%s'" % (self._call.name, source)
        for source in sorted({source_of(text) for text in controls(self._call)} - self._needed - self._may):
            yield "'%s' waits for '%s'" % (self._call.name, source)

    def _differences(self, side: int, body: Any, was: Any, node: Any) -> Iterator[str]:
        attributes = [{k: v for k, v in proto.attr.items() if k != "_class"} for proto in (was, node)]
        if attributes[0] != attributes[1] or self._view.of[was.name] != {(self._predicate, side)}:
            yield "'%s' (%s) has other attributes, or another side" % (node.name, node.op)
        if len(data(node)) != len(data(was)):
            yield "'%s' has other inputs" % node.name
        for text, local in zip(data(was), data(node)):
            if not self._is_read(body, text, local, side):
                yield "'%s' reads '%s' for '%s'" % (node.name, local, text)

    def _awaited(self, text: str) -> list[str]:
        """What an input waits for beside its value: a Switch that is left out hands on what it waits for."""
        source = self._view.nodes[source_of(text)]
        if source.op != "Switch":
            return [source.name] if text[0] == "^" else []
        ahead = [source_of(control) for control in controls(source)]
        return [source_of(source.input[0]), *ahead] if text[0] == "^" else ahead

    def _meaning(self, body: Any, local: str) -> tuple[str, int] | None:
        """The tensor of the graph that a name in a branch stands for: (node, output)."""
        given = {argument.name: text for argument, text in zip(body.signature.input_arg, self._given)}
        if local in given:
            return output_of(given[local])
        node = self._view.nodes.get(local.partition(":")[0])
        if node is None or all(node.name != inner.name for inner in body.node_def):
            return None
        count = len(arguments.dtypes(tf_internals.op_defs()[node.op].output_arg, node))
        names = {"%s:%s" % (node.name, self._outputs.text(node, port)): port for port in range(count)}
        return (node.name, names[local]) if local in names else None

    def _behind(self, text: str, side: int) -> Iterator[tuple[str, int]]:
        """A tensor, and those behind it that have its value on a side of the If."""
        while True:
            name, port = output_of(text)
            node = self._view.nodes[name]
            if node.op != "Switch":
                yield name, port
            passes = node.op == "Identity" or (
                node.op == "Switch" and port == side and self._view.predicate(node) == self._predicate
            )
            if not passes or name in self._view.fed:
                return
            text = node.input[0]
