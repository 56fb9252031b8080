"""Moves the nodes between Switch and its targets into the branches of one functional If.

    s = Switch(x, p)  a = Exp(s:1)  m = Merge(s:0, a)   ->   i = StatelessIf(p, x, then=Exp, else=x)  m = Identity(i)
    s = Switch(w, p)  a = Assign(s:1, 0)  NoOp(^a)      ->   c = Call(p, w)  NoOp(^c, ^side)

`side` runs on that side only, as `a` did. Nodes that the rest of the branch needs too are duplicated.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Container

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graphdef.functions import Outputs
from npu_shim.session.clusters.branches import NONE, Branches

MUST_COMPILE = "_XlaMustCompile"
PLUMBING = ("Const", "Identity", "NoOp", "ReadVariableOp", "Snapshot")
SIDES = (1, 0)  # then, else


class Move:
    """One group's move.

    Args:
        view: Branches of the graph.
        group: conditionals.Group.
    """

    def __init__(self, view: Branches, group: Any) -> None:
        self._view, self._group = view, group
        self._outputs = Outputs({})
        self._arguments = {}  # tensor -> (name in the functions, dtype)
        self._waits = {}  # control inputs, in their order
        self._moved = self._moved_names()
        self._switches = {
            source_of(text)
            for name in (*self._moved, *group.targets)
            for text in view.nodes[name].input
            if view.nodes[source_of(text)].op == "Switch"
        }

    def is_whole(self, writes: Container[str]) -> bool:
        """Whether the move takes along no other op of the types `writes`, and no variable of another device."""
        nodes = [self._view.nodes[name] for name in self._moved]
        written = {node.name for node in nodes if node.op in writes}
        devices = {node.device for node in nodes if tf.resource.as_datatype_enum in input_dtypes(node)}
        if not self._group.updates:
            return not devices
        return devices == {self._view.nodes[self._group.targets[0]].device} and written == set(self._group.targets)

    def size(self) -> float:
        """The number of ops that move: without plumbing, but with each Switch, which costs as much as an op.

        Infinite for a Merge of values, which is always worth moving: it would cut a cluster in two.
        """
        if not self._group.updates:
            return math.inf
        return len(self._switches) + sum(self._view.nodes[name].op not in PLUMBING for name in self._moved)

    def result(self, graph_def: tf.GraphDef, keep: Container[str]) -> tf.GraphDef:
        """Returns the GraphDef with the group moved; names in `keep` stay."""
        converted = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
        name = self._free_name(self._group.targets[0] + "/If")
        functions = tf.GraphDef().library
        branches = [self._branch(functions, side) for side in SIDES]
        needed = self._names_still_needed()
        for node in graph_def.node:
            dropped = node.name in self._moved or node.name in self._switches
            if not dropped or node.name in needed or node.name in keep:
                converted.node.add().CopyFrom(node)
        if self._group.updates:
            self._call(converted, name, branches, functions.function.add())
        else:
            self._conditional(converted, name, branches)
        converted.library.function.extend(
            {function.signature.name: function for function in functions.function}.values()
        )
        return converted

    def _moved_names(self):
        """Names of the nodes that move, in topological order."""
        view, moved = self._view, set()
        pending = list(self._group.targets)
        while pending:
            name = pending.pop()
            if name not in moved:
                moved.add(name)
                pending += [s for s in map(source_of, view.nodes[name].input) if view.of[s] != NONE]
        return [name for name in view.nodes if name in moved and view.of[name] != NONE]

    def _names_still_needed(self):
        """Names of the moved nodes that the remaining nodes still need."""
        view, needed = self._view, set()
        gone = {*self._moved, *self._switches}
        pending = [name for name in view.nodes if name not in gone]
        while pending:
            name = pending.pop()
            if name in self._group.targets and not self._group.updates:
                continue  # the Merge takes the results of the If
            for source in map(source_of, view.nodes[name].input):
                if source in gone and source not in needed and source not in self._group.targets:
                    needed.add(source)
                    pending.append(source)
        return needed

    def _branch(self, library, side):
        """Adds the function of a side to a library and returns it; its arguments are only known after both sides."""
        function = library.function.add()
        for name in self._moved:
            node = self._view.nodes[name]
            if next(iter(self._view.of[name]))[1] == side:
                self._add_node(function, node)
        if not self._group.updates:
            merge = self._view.nodes[self._group.targets[0]]
            dtype = merge.attr["T"].type
            text = next(t for t in merge.input if t[0] != "^" and self._side(t) == side)
            function.signature.output_arg.add(name="value", type=dtype)
            function.ret["value"] = self._local_name(function, text, dtype)
        return function

    def _side(self, text):
        return next(iter(self._view.along(text)))[1]

    def _add_node(self, function, node):
        added = function.node_def.add()
        added.CopyFrom(node)
        added.device = ""
        added.attr.pop("_class", None)
        del added.input[:]
        dtypes = input_dtypes(node)
        added.input.extend(self._local_name(function, text, dtype) for text, dtype in zip(node.input, dtypes))
        for text in node.input[len(dtypes) :]:
            source = source_of(text)
            if source in self._moved:
                added.input.append("^" + source)
            else:
                self._add_wait(source)
        if node.name in self._group.targets:
            function.signature.is_stateful = True
            function.signature.control_output.append(node.name)
            function.control_ret[node.name] = node.name

    def _add_wait(self, source):
        node = self._view.nodes[source]
        if node.op != "Switch":
            self._waits["^" + source] = None
            return
        self._waits["^" + source_of(node.input[0])] = None
        self._waits.update(dict.fromkeys(arguments.controls(node)))

    def _local_name(self, function, text, dtype):
        """Returns a tensor's name inside a branch; a tensor from outside becomes an argument."""
        source, port = arguments.output_of(text)
        node = self._view.nodes[source]
        if source in self._moved:
            return "%s:%s" % (source, self._outputs.text(node, port))
        constant = constant_behind(self._view, text)
        if constant is not None:
            if not any(node.name == constant.name for node in function.node_def):
                added = function.node_def.add(name=constant.name, op="Const")
                for attr in ("dtype", "value"):
                    added.attr[attr].CopyFrom(constant.attr[attr])
            return constant.name + ":output:0"
        if node.op == "Switch":
            self._waits.update(dict.fromkeys(arguments.controls(node)))
            text = node.input[0]
        return self._arguments.setdefault(text, ("arg%d" % len(self._arguments), dtype))[0]

    def _conditional(self, graph_def, name, branches):
        """Adds the If of a Merge; the Merge becomes an Identity and keeps its name."""
        merge = next(node for node in graph_def.node if node.name == self._group.targets[0])
        node = graph_def.node.add(name=name, op="StatelessIf", device=merge.device)
        self._set_branches(node, branches, [merge.attr["T"].type])
        node.input.extend([self._group.predicate, *self._arguments, *self._waits])
        waits = arguments.controls(merge)
        dtype = merge.attr["T"].type
        merge.Clear()
        merge.MergeFrom(tf.NodeDef(name=self._group.targets[0], op="Identity", input=[name, *waits]))
        merge.device = node.device
        merge.attr["T"].type = dtype

    def _call(self, graph_def, name, branches, function):
        """Adds the call of a function that contains the If of updates."""
        dtypes = [dtype for _, dtype in self._arguments.values()]
        body = function.node_def.add(name="if", op="If")
        self._set_branches(body, branches, [])
        function.signature.input_arg.add(name="predicate", type=tf.bool.as_datatype_enum)
        for local, dtype in self._arguments.values():
            function.signature.input_arg.add(name=local, type=dtype)
        body.input.extend(arg.name for arg in function.signature.input_arg)
        function.signature.is_stateful = True
        function.signature.control_output.append("if")
        function.control_ret["if"] = "if"
        call = graph_def.node.add(name=name, op="StatefulPartitionedCall")
        call.device = self._view.nodes[self._group.targets[0]].device
        call.input.extend([self._group.predicate, *self._arguments, *self._waits])
        call.attr["Tin"].list.type.extend([tf.bool.as_datatype_enum, *dtypes])
        call.attr["Tout"].list.SetInParent()
        call.attr["f"].func.name = _name_by_content(function)
        call.attr[MUST_COMPILE].b = True
        self._wait_for_call(graph_def, name)

    def _wait_for_call(self, graph_def, name):
        """Makes the nodes that waited for an update wait for the call, on the update's side."""
        targets = {"^" + target: self._side_of(target) for target in self._group.targets}
        sides = set()
        for node in graph_def.node:
            waited = [text for text in node.input if text in targets]
            if waited:
                sides.update(map(targets.get, waited))
                ahead = ["^" + name, *("^%s/side%d" % (name, side) for side in set(map(targets.get, waited)))]
                rest = [text for text in node.input if text not in targets]
                del node.input[:]
                node.input.extend([*rest, *ahead])
        if sides:
            predicate = self._group.predicate
            device = self._view.nodes[source_of(predicate)].device
            graph_def.node.add(name=name + "/switch", op="Switch", input=[predicate] * 2, device=device)
            graph_def.node[-1].attr["T"].type = tf.bool.as_datatype_enum
        for side in sorted(sides):
            text = "%s/switch:%d" % (name, side)
            graph_def.node.add(name="%s/side%d" % (name, side), op="Identity", input=[text], device=device)
            graph_def.node[-1].attr["T"].type = tf.bool.as_datatype_enum

    def _side_of(self, target):
        return next(iter(self._view.of[target]))[1]

    def _set_branches(self, node, branches, gives):
        """Sets the attributes of an If, and completes the functions of its branches."""
        for function in branches:
            for local, dtype in self._arguments.values():
                function.signature.input_arg.add(name=local, type=dtype)
        node.attr["Tcond"].type = tf.bool.as_datatype_enum
        node.attr["Tin"].list.type.extend(dtype for _, dtype in self._arguments.values())
        node.attr["Tout"].list.type.extend(gives)
        node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = map(_name_by_content, branches)

    def _free_name(self, name):
        while name in self._view.nodes:
            name += "_"
        return name


def constant_behind(view: Branches, text: str) -> tf.NodeDef | None:
    """The Const behind a tensor's Identity and Switch nodes, or None; also None where one of them may be fed."""
    node = view.nodes[source_of(text)]
    while node.op in ("Identity", "Switch") and node.name not in view.fed:
        node = view.nodes[source_of(node.input[0])]
    return node if node.op == "Const" and node.name not in view.fed else None


def input_dtypes(node: tf.NodeDef) -> list[int]:
    """The dtypes of a node's data inputs."""
    return arguments.dtypes(tf_internals.op_defs()[node.op].input_arg, node)


def _name_by_content(function):
    """Names a function by its content; returns the name."""
    function.signature.name = ""
    digest = hashlib.sha256(function.SerializeToString(deterministic=True)).hexdigest()[:16]
    function.signature.name = "npu_shim_if_" + digest
    return function.signature.name
