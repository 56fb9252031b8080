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

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Value
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.control_flow.gradient_sinking.loops import View
from npu_shim.xla.passes.control_flow.gradient_sinking.plan import SUMMED_IN, Sum
from npu_shim.xla.passes.legalize.ops import lists

# serialized xla.DotDimensionNumbers: the first dimension of both factors is summed
FIRST_OF_BOTH = b"\x0a\x01\x00\x12\x01\x00"
VARIANT = DType(tf.variant.as_datatype_enum)


def apply(view: View, sums: Iterable[Sum]) -> None:
    """Makes the sums of `plan.plan` after their loops; nodes that no longer count are still in the graph."""
    writer = _Writer(view)
    for total in sums:
        writer.write(total)


class _Writer:
    """Adds lists and sums to a graph."""

    def __init__(self, view):
        self._graph, self._view = view.graph, view
        self._lists = {}  # value that is kept -> the list of its values in all steps, after the loop

    def write(self, summed: Sum) -> None:
        """Turns the Exit of a sum into the sum of its terms after the loop."""
        factors = list(dict.fromkeys(factor for term in summed.terms for factor in term))
        dtype = self._view.tensor(summed.exit.value).dtype
        taken = [(summed.start, dtype), *((self._list(factor, summed.gradient), tf.variant) for factor in factors)]
        likes = [self._like(factor, summed.gradient) for factor in factors]

        def build(start, *handles):
            rows = {factor: _rows(*given, factor.casts) for factor, *given in zip(factors, handles, likes)}
            total = tf.add_n([_term([rows[factor] for factor in term]) for term in summed.terms])
            tf.add(start, tf.cast(total, dtype), "late")

        late = self._insert(summed.exit.name + "/summed/", taken, build, "late")
        summed.exit.forward(late, dtype.as_datatype_enum)

    def _insert(self, scope, taken, build, result, first=None):
        """Adds what `build` makes, as of `subgraphs.nodes`; returns the value of a node in its scope."""
        taken = [(str(value), dtype) for value, dtype in taken]
        graphdef.insert(self._graph, subgraphs.nodes(scope, taken, build, first))
        return self._graph[scope + result].value

    def _like(self, factor, gradient):
        """Shape and dtype of a factor's values in all steps, before it is cast."""
        tensor = self._view.tensor(factor.kept)
        return tf.TensorSpec([gradient.size, *tensor.shape.as_list()], tensor.dtype)

    def _list(self, factor, gradient):
        kept = factor.kept
        if kept not in self._lists:
            like = self._like(factor, gradient)
            if factor.is_popped:
                rows = self._instead(gradient.stacks[kept.node], gradient, like)
            else:
                rows = self._carried("%s/rows_%d" % (kept.node.name, kept.index), gradient.backward, kept, like)
            self._lists[kept] = rows
        return self._lists[kept]

    def _instead(self, stack, gradient, like):
        """Adds a list in place of a Stack; returns it after the forward loop."""
        push, pop = stack
        rows = self._carried(push.name + "/rows", gradient.forward, push.inputs[1], like)
        push.forward(push.inputs[1], like.dtype.as_datatype_enum)
        scope = pop.name + "/row/"
        entered = self._enter(scope + "all", rows, gradient.backward, is_constant=True)

        def build(handle, place):
            row = tf.TensorSpec(like.shape[1:], like.dtype)
            tf.identity(lists.get(handle, tf.identity(place, "place"), row), "value")

        taken = [(entered, tf.variant), (gradient.backward.place, tf.int32)]
        pop.forward(self._insert(scope, taken, build, "value", "place"), like.dtype.as_datatype_enum)
        return rows

    def _carried(self, scope, loop, item, like):
        """Adds a loop variable, a list of which each step writes an element; returns it after the loop."""
        empty = self._insert(scope + "/", [], lambda: tf.identity(lists.empty(like), "empty"), "empty")
        entered = self._enter(scope + "/enter", empty, loop, is_constant=False)
        merged = self._add(scope + "/merge", "Merge", [entered], N=2)
        switched = self._add(scope + "/switch", "Switch", [merged, loop.condition.value])
        element = {"element_dtype": DType(like.dtype.as_datatype_enum)}
        taken = [switched.node.output(1), loop.place, item]
        written = self._graph.add(scope + "/write", "TensorListSetItem", taken, attrs=element).value
        following = self._add(scope + "/next", "NextIteration", [written])
        merged.node.set_inputs([entered, following])
        return self._add(scope + "/exit", "Exit", [switched])

    def _enter(self, name, value, loop, is_constant):
        """Adds an Enter of a list into a loop."""
        attrs = {key: loop.enter.attrs[key] for key in ("frame_name", "parallel_iterations")}
        return self._add(name, "Enter", [value], is_constant=is_constant, **attrs)

    def _add(self, name, op, inputs, **attrs) -> Value:
        """Adds a node that passes on a list."""
        return self._graph.add(name, op, inputs, attrs={"T": VARIANT, **attrs}).value


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
