"""Keeps XLA from treating variables as constants although the step writes them.

XLA takes compile-time values (compile_time.py) from variables too: the variable becomes a constant of the program,
which is compiled again for each new value. A read after a tf.cond or loop that writes the variable still yields that
constant, not the written value (TensorFlow 2.15.1):

    c: If(p, v <- v + 1, ...)      r: ReadVariableOp(v, ^c)      x[r % 4]          r had the old value of v

A Stack ends the search for constants, since a pushed value is not an input of the pop. XLA then slices at a position
known only at run time, and refuses a shape that it does not know:

    r: ReadVariableOp(v)     becomes     r -> StackPushV2(s, r)     r/barrier: StackPopV2(s, ^push)
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import writes
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graphdef import functions
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.session import lines
from npu_shim.xla.passes.shapes import compile_time


def insert(module: Module, context: Any = None) -> None:
    """Puts barriers to constant propagation behind the reads of variables that a branch or loop writes.

    Args:
        module: of functional control flow and resource variables.
        context: not used.
    """
    written = {handle.name: handle for handle in writes.written(module.graph)}
    graph_def = graphdef.write(module)
    guarded = _guarded(graph_def, written) if written else ()
    if guarded:
        result = tf.GraphDef(versions=graph_def.versions)
        result.library.CopyFrom(graph_def.library)
        library = {function.signature.name: function for function in result.library.function}
        shapes = {node.name: node.attr["shape"].shape for node in graph_def.node if node.name in guarded}
        result.node.extend(_Scope(graph_def.node, shapes, library, is_body=False).result())
        graphdef.replace(module, result)


def _guarded(graph_def, written):
    """Names of the handles to guard, of the written ones by name; warns of those that stay constants of the program."""
    library = {function.signature.name: function for function in graph_def.library.function}
    taken = written.keys() & set(compile_time.asked(graph_def.node, library))
    if not taken:
        return taken
    calls = {node.name for node in graph_def.node if functions.called(node, library)}
    inside = {name for name in taken if any(user.name in calls and writes.writes(user, written[name])
                                            for user in written[name].users())}  # fmt: skip
    sizes = compile_time.asked(graph_def.node, library, places=False)
    for name in sorted((taken - inside) & set(sizes)):
        lines.once(
            "node '%s' takes a size or an axis from variable '%s', which the step writes: it is compiled again for "
            "every new value" % (sizes[name], name)
        )
    return inside | (taken - set(sizes))


class _Scope:
    """A graph or a function's body, in which barriers stand behind the values of variables.

    Args:
        nodes: NodeDefs.
        shapes: name of a guarded variable's handle in this scope -> its TensorShapeProto.
        library: function name -> FunctionDef; the bodies that take such a handle are changed.
        is_body: whether tensor names have the form used in functions.
    """

    def __init__(self, nodes, shapes, library, is_body):
        self._nodes, self._shapes, self._library, self._is_body = list(nodes), shapes, library, is_body
        self._outputs = functions.Outputs(library)
        self._asked = compile_time.asked(self._nodes, library)
        self._replaced = {}  # tensor -> its replacement

    def result(self) -> list[Any]:
        """Returns the nodes of the scope."""
        added = []
        for node in self._nodes:
            taken = enumerate(map(source_of, arguments.data(node)))
            handles = {number: name for number, name in taken if name in self._shapes}
            if handles:
                self._guard_bodies(node, handles)
                added += self._guard_outputs(node) if node.name in self._asked else []
        return [self._with_replaced(node) for node in self._nodes] + added

    def _guard_bodies(self, node, handles):
        first = functions.kind_of(node, self._library) == functions.BRANCH  # its first input is the predicate
        for name in functions.called(node, self._library):
            body = self._library[name]
            named = {body.signature.input_arg[n - first].name: self._shapes[handle] for n, handle in handles.items()}
            scope = _Scope(body.node_def, named, self._library, is_body=True)
            nodes = scope.result()
            del body.node_def[:]
            body.node_def.extend(nodes)
            for key, text in body.ret.items():
                body.ret[key] = scope._replaced.get(text, text)

    def _guard_outputs(self, node):
        function = self._library.get(node.op)
        definition = function.signature if function is not None else tf_internals.op_defs()[node.op]
        added = []
        for number, dtype in enumerate(arguments.dtypes(definition.output_arg, node)):
            if dtype != tf.resource.as_datatype_enum:
                shape = self._shapes[source_of(node.input[0])] if node.op == "ReadVariableOp" else None
                added += self._through_stack(node, number, dtype, shape)
        return added

    def _through_stack(self, node, number, dtype, shape):
        """The barrier that replaces one output, as nodes; `shape` is its shape, None if unknown."""
        graph_def = tf.GraphDef()
        scope = "%s/barrier_%d" % (node.name, number)
        size = graph_def.node.add(name=scope + "/size", op="Const")
        size.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, tf.int32))
        size.attr["dtype"].type = tf.int32.as_datatype_enum
        stack = graph_def.node.add(name=scope + "/stack", op="StackV2", input=[self._text(size)])
        stack.attr["elem_type"].type = dtype
        text = self._text(node, number)
        push = graph_def.node.add(name=scope + "/push", op="StackPushV2", input=[self._text(stack), text])
        push.attr["T"].type = dtype
        last = graph_def.node.add(name=scope + "/pop", op="StackPopV2", input=[self._text(stack), "^" + push.name])
        last.attr["elem_type"].type = dtype
        if shape is not None:
            last = graph_def.node.add(name=scope, op="EnsureShape", input=[self._text(last)])
            last.attr["T"].type = dtype
            last.attr["shape"].shape.CopyFrom(shape)
        self._replaced[text] = self._text(last)
        return list(graph_def.node)

    def _text(self, node, number=0):
        if self._is_body:
            return "%s:%s" % (node.name, self._outputs.text(node, number))
        return "%s:%d" % (node.name, number) if number else node.name

    def _with_replaced(self, node):
        copy = tf.NodeDef()
        copy.CopyFrom(node)
        for number, text in enumerate(node.input):
            text = text[:-2] if not self._is_body and text.endswith(":0") else text
            copy.input[number] = self._replaced.get(text, text)
        return copy
