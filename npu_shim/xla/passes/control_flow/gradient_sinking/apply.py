"""Writes the sums of a plan into a graph with v1 loops.

A Stack whose values are factors becomes a TensorList, which the forward loop passes on and which can be read as a
whole:

    push(stack, a)      becomes     list = TensorListSetItem(list, n, a)     n: the number of the step
    a = pop(stack)      becomes     a = TensorListGetItem(list, n)           in the gradient's loop, n counts down

Other factors are written to a TensorList in the gradient's loop. Elements of steps that were not taken are zeros.
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import controls, output_of
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.control_flow.gradient_sinking.loops import View
from npu_shim.xla.passes.control_flow.gradient_sinking.plan import SUMMED_IN, Sum
from npu_shim.xla.passes.legalize.ops import lists

# serialized xla.DotDimensionNumbers: the first dimension of both factors is summed
FIRST_OF_BOTH = b"\x0a\x01\x00\x12\x01\x00"


def apply(graph_def: Any, view: View, sums: Iterable[Sum]) -> Any:
    """Returns a GraphDef in which the sums are made after their loops; nodes that no longer count are still in it.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        view: the View of it.
        sums: of `plan.plan`.
    """
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    writer = _Writer(copy, view)
    for total in sums:
        writer.write(total)
    return copy


class _Writer:
    """Adds lists and sums to a GraphDef."""

    def __init__(self, graph_def, view):
        self._made, self._view = graph_def, view
        self._nodes = {node.name: node for node in graph_def.node}
        self._lists = {}  # tensor that is kept -> the list of its values in all steps, after the loop

    def write(self, each: Sum) -> None:
        """Turns the Exit of a sum into the sum of its terms after the loop."""
        factors = list(dict.fromkeys(factor for term in each.terms for factor in term))
        dtype = self._view.tensor(each.exit.name).dtype
        taken = [(each.start, dtype), *((self._list(factor, each.gradient), tf.variant) for factor in factors)]
        likes = [self._like(factor, each.gradient) for factor in factors]

        def build(start, *handles):
            rows = {factor: _rows(*given, factor.casts) for factor, *given in zip(factors, handles, likes)}
            total = tf.add_n([_term([rows[factor] for factor in term]) for term in each.terms])
            tf.add(start, tf.cast(total, dtype), "late")

        scope = each.exit.name + "/summed/"
        self._made.node.extend(subgraphs.nodes(scope, taken, build))
        self._forward(each.exit.name, scope + "late", dtype)

    def _like(self, factor, gradient):
        """Shape and dtype of a factor's values in all steps, before it is cast."""
        tensor = self._view.tensor(factor.kept)
        return tf.TensorSpec([gradient.size, *tensor.shape.as_list()], tensor.dtype)

    def _list(self, factor, gradient):
        if factor.kept not in self._lists:
            like = self._like(factor, gradient)
            name, port = output_of(factor.kept)
            if factor.is_popped:
                rows = self._instead(gradient.stacks[name], gradient, like)
            else:
                rows = self._carried("%s/rows_%d" % (name, port), gradient.backward, factor.kept, like)
            self._lists[factor.kept] = rows
        return self._lists[factor.kept]

    def _instead(self, stack, gradient, like):
        """Adds a list in place of a Stack; returns it after the forward loop."""
        push, pop = stack
        name = self._carried(push.name + "/rows", gradient.forward, push.input[1], like)
        self._forward(push.name, push.input[1], like.dtype)
        scope = pop.name + "/row/"
        entered = self._enter(scope + "all", name, gradient.backward, is_constant=True)

        def build(handle, place):
            row = tf.TensorSpec(like.shape[1:], like.dtype)
            tf.identity(lists.get(handle, tf.identity(place, "place"), row), "value")

        taken = [(entered, tf.variant), (gradient.backward.place, tf.int32)]
        self._made.node.extend(subgraphs.nodes(scope, taken, build, "place"))
        self._forward(pop.name, scope + "value", like.dtype)
        return name

    def _carried(self, scope, loop, item, like):
        """Adds a loop variable, a list of which each step writes an element; returns it after the loop."""
        self._made.node.extend(subgraphs.nodes(scope + "/", [], lambda: tf.identity(lists.empty(like), "empty")))
        entered = self._enter(scope + "/enter", scope + "/empty", loop, is_constant=False)
        merged = self._add(scope + "/merge", "Merge", [entered, scope + "/next"])
        self._nodes[merged].attr["N"].i = 2
        switched = self._add(scope + "/switch", "Switch", [merged, loop.condition])
        written = self._add(scope + "/write", "TensorListSetItem", [switched + ":1", loop.place, item])
        del self._nodes[written].attr["T"]
        self._nodes[written].attr["element_dtype"].type = like.dtype.as_datatype_enum
        self._add(scope + "/next", "NextIteration", [written])
        return self._add(scope + "/exit", "Exit", [switched])

    def _enter(self, name, text, loop, is_constant):
        """Adds an Enter of a list into a loop."""
        node = self._nodes[self._add(name, "Enter", [text])]
        for attr in ("frame_name", "parallel_iterations"):
            node.attr[attr].CopyFrom(loop.enter.attr[attr])
        node.attr["is_constant"].b = is_constant
        return name

    def _add(self, name, op, inputs):
        """Adds a node that passes on a list; returns its name."""
        node = self._made.node.add(name=name, op=op, input=inputs)
        node.attr["T"].type = tf.variant.as_datatype_enum
        self._nodes[name] = node
        return name

    def _forward(self, name, text, dtype):
        """Turns a node into an Identity of another tensor; what waits for it still does."""
        node = self._nodes[name]
        inputs = [text, *controls(node)]
        node.op = "Identity"
        node.attr.clear()
        node.attr["T"].type = dtype.as_datatype_enum
        node.input[:] = inputs


def _rows(handle: Any, like: Any, casts: Iterable[Any]) -> Any:
    """A factor's values in all steps, the batch's rows [steps * batch, n] one after the other."""
    value = lists.stacked(handle, like)
    for dtype in casts:
        value = tf.cast(value, dtype)
    return tf.reshape(value, [-1, like.shape.as_list()[-1]])


def _term(rows: Sequence[Any]) -> Any:
    """A term of a sum over all steps, from the rows of its factors."""
    dtype = SUMMED_IN[rows[0].dtype]
    if len(rows) == 1:
        return tf.reduce_sum(tf.cast(rows[0], dtype), 0)
    if dtype == rows[0].dtype:
        return tf.matmul(*rows, transpose_a=True)
    attrs = {
        "dimension_numbers": tf.AttrValue(s=FIRST_OF_BOTH),
        "precision_config": tf.AttrValue(s=b""),
        "preferred_element_type": tf.AttrValue(type=dtype.as_datatype_enum),
    }
    return tf.get_default_graph().create_op("XlaDotV2", rows, [dtype], attrs=attrs).outputs[0]
