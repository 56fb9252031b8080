"""Makes the update of a step that may be skipped unconditional: it always runs, and a choice keeps the old values.

    If(finite, v <- update(v, g), nothing)     becomes     old = v     v <- update(v, g)     v <- finite ? v : old

XLA compiles the branches of an If apart from what surrounds them. So the gradients, unscaled, would be written in
float32 in front of it and read in it; now the casts and products that unscale them are part of the update's kernel,
which reads them in 16 bits. The values are the same bits in steps that are applied and in steps that are skipped. Only
an If that tests whether values are finite is replaced: its update is seldom skipped, so that running it costs nothing.

The loss-scale optimizer first looks at the sum of all squares, and at each value where that is not finite. In one
program both would read all gradients:

    If(finite(sum of squares of x, y), True, all(finite(x), finite(y)))     becomes     all(finite(x), finite(y))
"""

from __future__ import annotations

import math
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import controls, data, source_of
from npu_shim.rewriter.graphdef import functions
from npu_shim.xla.passes.legalize import bodies
from npu_shim.xla.passes.resources import writers

IFS = ("If", "StatelessIf")
TESTS = frozenset(["IsFinite", "IsInf", "IsNan"])
# what a predicate may be made of
LOGIC = frozenset(["All", "Any", "Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Pack", "Reshape", *IFS])
STATE_OPS = ("Assign", "Resource", "ReadVariableOp")  # how the ops begin that read or write variables and nothing else
COSTLY = ("Conv", "MatMul", "Einsum", "Random", "Stateless", "FFT", "Cholesky", "Qr", "Svd")  # in the names of ops
OF_ROWS = ("ResourceScatter", "ResourceSparseApply")  # how the ops begin that write some rows of a variable
# a choice reads and writes all rows of a table of which the update writes a few: such tables are at most an eighth of
# what the update writes
PARTS = 8
SCOPE = "/always/"


def always(graph_def: Any) -> Any:
    """Returns a GraphDef whose updates under a test of finiteness run unconditionally; the same object without one.

    Args:
        graph_def: tf.compat.v1.GraphDef with functional control flow and resource variables; it is not changed.
    """
    view = _View(graph_def)
    chosen = {node.name for node in graph_def.node if node.op in IFS and view.is_seldom_skipped(node)}
    if not chosen:
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        made.node.extend(view.straightened(node) if node.name in chosen else [node])
    return made


class _View:
    def __init__(self, graph_def):
        self._graph_def = graph_def
        self._nodes = {node.name: node for node in graph_def.node}
        self._bodies = {function.signature.name: function for function in graph_def.library.function}

    def is_seldom_skipped(self, node):
        """Whether an If tests finiteness, and has nothing in its branches that is costly or has another effect."""
        if not self._tests_finiteness(node.input[0]) or any(value in _no_values() for value in _types(node)):
            return False
        handles = [text for text in data(node)[1:] if self._nodes[source_of(text)].op == "VarHandleOp"]
        return self._is_plain(node, "else_branch", handles, 0) and self._is_plain(node, "then_branch", handles, None)

    def _tests_finiteness(self, text):
        ahead, seen = [source_of(text)], set()
        while ahead:
            node = self._nodes[ahead.pop()]
            if node.op in TESTS:
                return True
            if node.op in LOGIC and node.name not in seen:
                seen.add(node.name)
                ahead += map(source_of, data(node))
        return False

    def _is_plain(self, node, branch, handles, most):
        """Whether a branch reads and writes variables at most: `most` of them, None for any number."""
        function = self._bodies[node.attr[branch].func.name]
        if any(not self._is_cheap(each) for each in function.node_def):
            return False
        resources = [arg for arg in function.signature.input_arg if arg.type == tf.resource.as_datatype_enum]
        written = self._written(node, branch)
        if len(resources) != len(handles) or (most is not None and len(written) > most):
            return False
        whole = self._written(node, branch, lambda each: not each.op.startswith(OF_ROWS))
        rows = self._elements(node, branch, written - whole, math.inf)
        return PARTS * rows <= self._elements(node, branch, whole, 0)

    def _is_cheap(self, node):
        known = tf_internals.op_defs()
        if functions.called(node, self._bodies) or node.op not in known or any(word in node.op for word in COSTLY):
            return False
        return not known[node.op].is_stateful or node.op.startswith(STATE_OPS)

    def _elements(self, node, branch, names, unknown):
        """The number of elements of variables, by the names that a branch has for them; one may be `unknown`."""
        arguments = self._bodies[node.attr[branch].func.name].signature.input_arg
        handles = [source_of(text) for arg, text in zip(arguments, data(node)[1:]) if arg.name in names]
        shapes = [self._nodes[handle].attr["shape"].shape for handle in handles]
        counts = [tf.TensorShape(shape).num_elements() for shape in shapes]
        return sum(unknown if count is None else count for count in counts)

    def _written(self, node, branch, counts=lambda each: True):
        """Names of the arguments of a branch that it writes to, by ops that count."""
        function = self._bodies[node.attr[branch].func.name]
        given = {
            arg.name: {arg.name} for arg in function.signature.input_arg if arg.type == tf.resource.as_datatype_enum
        }
        return writers.written_by(list(filter(counts, function.node_def)), given, self._bodies)

    def straightened(self, node):
        """The nodes that replace an If."""
        predicate, *taken = data(node)
        scope, waits = node.name + SCOPE, controls(node)
        arguments = self._bodies[node.attr["then_branch"].func.name].signature.input_arg
        handles = {arg.name: text for arg, text in zip(arguments, taken)}
        written = sorted(handles[name] for name in self._written(node, "then_branch"))
        olds = [self._read("%sold_%d" % (scope, number), handle, waits) for number, handle in enumerate(written)]
        inside, results = self._inlined(node, "then_branch", olds)
        outside, others = self._inlined(node, "else_branch", [])
        ran = ["^" + each.name for each in inside if tf_internals.op_defs()[each.op].is_stateful]
        made = [*olds, *inside, *outside]
        for number, (handle, old) in enumerate(zip(written, olds)):
            new = self._read("%snew_%d" % (scope, number), handle, ran)
            kept = _choice("%skept_%d" % (scope, number), predicate, new.name, old.name, new.attr["dtype"].type)
            made += [new, kept, _assign("%sassign_%d" % (scope, number), handle, kept)]
        ran += ["^" + each.name for each in made if each.op == "AssignVariableOp" and each.name.startswith(scope)]
        if self._is_shortcut(node, results, inside):
            values = [_passed_on("%svalue_0" % scope, others[0])]
        else:
            values = [
                _choice("%svalue_%d" % (scope, number), predicate, *pair, dtype)
                for number, (*pair, dtype) in enumerate(zip(results, others, _types(node)))
            ]
        return [*made, *values, _together(node.name, values, [*waits, *ran])]

    def _is_shortcut(self, node, results, inside):
        """Whether an If is all(finite(values)) where the sum of their squares is not finite, and else true."""
        predicate = self._nodes[source_of(node.input[0])]
        passed_on = {each.name: each.input[0] for each in inside if each.op == "Identity"}
        if [passed_on.get(result, result) for result in results] != data(node)[:1]:
            return False
        function = self._bodies[node.attr["else_branch"].func.name]
        given = {arg.name: text for arg, text in zip(function.signature.input_arg, data(node)[1:])}
        tested = self._all_tested(function, given)
        return bool(tested) and predicate.op in TESTS and tested <= self._squared(predicate)

    def _all_tested(self, function, given):
        """The tensors around a body of which it returns whether all values are finite; empty if it is another body."""
        nodes = {each.name: each for each in function.node_def}
        ahead, found = [source_of(text) for text in function.ret.values()], set()
        while ahead:
            each = nodes.get(ahead.pop())
            if each is None or each.op not in ("All", "Pack", "Identity", "LogicalAnd", "IsFinite", "Const"):
                return set()
            if each.op == "IsFinite":
                found.add(given.get(source_of(each.input[0])))
            else:
                ahead += map(source_of, data(each))
        return found - {None}

    def _squared(self, predicate):
        """The tensors whose squares' sum a node tests."""
        ahead, found = [source_of(predicate.input[0])], set()
        while predicate.op == "IsFinite" and ahead:
            each = self._nodes[ahead.pop()]
            if each.op == "L2Loss":
                text = each.input[0]
                source = self._nodes[source_of(text)]
                found |= {text, source.input[0]} if source.op == "Cast" else {text}
            elif each.op in ("Sum", "Pack", "Identity", "AddN", "Cast"):
                ahead += map(source_of, data(each))
        return found

    def _read(self, name, handle, waits):
        read = tf.NodeDef(name=name, op="ReadVariableOp", input=[handle, *dict.fromkeys(waits)])
        read.attr["dtype"].type = self._nodes[source_of(handle)].attr["dtype"].type
        return read

    def _inlined(self, node, branch, olds):
        """(nodes of a branch, its results); ops on variables wait for what the If waits for, and for `olds`."""
        function = self._bodies[node.attr[branch].func.name]
        graph_def = bodies.as_graph(function, self._graph_def.library, None)
        scope, waits = "%s%s/" % (node.name + SCOPE, branch.partition("_")[0]), controls(node)
        given = {arg.name: text for arg, text in zip(function.signature.input_arg, data(node)[1:])}
        waits += ["^" + each.name for each in olds]
        made = []
        for each in graph_def.node:
            if each.name not in given:
                each.input[:] = [_renamed(text, given, scope) for text in each.input]
                each.name = scope + each.name
                if tf_internals.op_defs()[each.op].is_stateful:
                    each.input.extend(text for text in dict.fromkeys(waits) if text not in each.input)
                made.append(each)
        return made, [_renamed(text, given, scope) for text in bodies.results(function, self._graph_def.library)]


def _types(node):
    return list(node.attr["Tout"].list.type)


def _no_values():
    """Dtypes whose tensors cannot be chosen between."""
    return tf.resource.as_datatype_enum, tf.variant.as_datatype_enum, tf.string.as_datatype_enum


def _renamed(text, given, scope):
    """A tensor or control input of a branch in the graph around it."""
    name = source_of(text)
    if text[0] == "^":
        return "^" + (source_of(given[name]) if name in given else scope + name)
    return given[name] if name in given else scope + text


def _choice(name, predicate, first, second, dtype):
    node = tf.NodeDef(name=name, op="SelectV2", input=[predicate, first, second])
    node.attr["T"].type = dtype
    return node


def _passed_on(name, text):
    node = tf.NodeDef(name=name, op="Identity", input=[text])
    node.attr["T"].type = tf.bool.as_datatype_enum
    return node


def _assign(name, handle, value):
    node = tf.NodeDef(name=name, op="AssignVariableOp", input=[handle, value.name])
    node.attr["dtype"].type = value.attr["T"].type
    return node


def _together(name: str, values: Iterable[Any], waits: Iterable[str]) -> Any:
    """The node of the If's name: its results, behind all that ran."""
    values = list(values)
    node = tf.NodeDef(name=name, op="IdentityN" if values else "NoOp", input=[each.name for each in values])
    node.input.extend(dict.fromkeys(waits))
    if values:
        node.attr["T"].list.type.extend(each.attr["T"].type for each in values)
    return node
