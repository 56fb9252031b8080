"""Gives the gradients of lookups in loops a fixed size, which XLA needs.

TensorFlow appends the rows of every iteration to those before, beginning with a row of zeros for index 0:

    values = zeros([1, d])      while ...: values = concat([values, new])

If `new` has 2 rows and the loop runs at most 5 times, this becomes

    values = zeros([11, d])     while ...: values = concat([values[2:], new])

The rows are in the same order; a loop that ends early leaves more zeros for index 0 in front of them. One that runs
longer than its condition was taken to allow would lose the first ones: its floats are checked (overruns.py).
"""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.control_flow import loop_pairs, overruns
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

ACCUMULATOR = re.compile(r"(^|/)b_acc(_\d+)?$")  # TensorFlow's name for what a gradient's loop sums or appends


class _Appended(NamedTuple):
    """The nodes of a loop variable that rows are appended to."""

    enter: Node
    concat: Node


def bound(module: Module, context: Any = None) -> None:
    """Has loops append no rows to gradients, in a module with v1 control flow and feeds of full shapes.

    Raises:
        PlanError: the number of iterations or of rows is unknown; the error names the node.
    """
    loops = [appended for appended in map(_appended, module.graph) if appended]
    if not loops:
        return
    folded = static_shapes.fold(graphdef.write(module), [source_of(text) for text in module.results().values()])
    counted = graphdef.read(folded).graph
    counts, exact = trip_counts.at_most(counted), trip_counts.exact(counted)
    rows = [str(appended.concat.inputs[1]) for appended in loops]
    shapes = static_shapes.infer(folded, rows)
    for appended, text in zip(loops, rows):
        _fix(appended, shapes[text], counts.get(_frame(appended.enter)))
    starts = loop_pairs.starts(module.graph)
    frames = {_frame(appended.enter) for appended in loops}
    certain = {frame for frame in frames if frame in starts and _counts_from(starts[frame]) in exact}
    overruns.mark_gradients(module.graph, {frame: counts[frame] for frame in sorted(frames - certain - exact)})


def _frame(enter: Node) -> str:
    frame: str = enter.attrs["frame_name"].decode()
    return frame


def _counts_from(start: Node) -> str | None:
    """The frame of the loop behind which a gradient's counter (its Enter) starts; None if it starts elsewhere."""
    node: Node = start.inputs[0].node
    if node.op != "Exit":
        return None
    while node.op != "Enter":  # the Switch, the Merge
        node = node.inputs[0].node
    return _frame(node)


def _appended(merge: Node) -> _Appended | None:
    """The nodes of a loop variable, if `merge` is its Merge and rows are appended to it; else None."""
    if merge.op != "Merge" or not ACCUMULATOR.search(merge.name):
        return None
    enter, following = (value.node for value in merge.inputs[:2])
    if enter.op != "Enter" or following.op != "NextIteration":
        return None
    concat = following.inputs[0].node
    if concat.op != "ConcatV2" or concat.attrs["N"] != 2:
        return None
    switch = concat.inputs[0].node
    return _Appended(enter, concat) if switch.inputs[0].node is merge else None


def _fix(appended: _Appended, rows: tf.TensorShape, count: int | None) -> None:
    """Changes the nodes of one loop variable; `rows` is the shape of what an iteration appends."""
    enter, concat = appended.enter, appended.concat
    if count is None or not rows.is_fully_defined():
        unknown = "how often the loop runs" if count is None else "how many rows an iteration takes"
        raise PlanError(
            "node '%s' (%s) keeps the rows of all iterations for the gradient of a lookup in a loop, and XLA must know "
            "%s: give tf.while_loop maximum_iterations, take the rows before the loop, or %s"
            % (concat.name, concat.op, unknown, IN_SESSION)
        )
    new, *rest = rows.as_list()
    dtype = tf.as_dtype(enter.attrs["T"])
    zeros = np.zeros([1 + count * new, *rest], dtype.as_numpy_dtype)
    start = _constant(enter.name + "/start", zeros, [enter.inputs[0].node])
    waits = concat.inputs[2].node.controls  # the axis is in the loop
    begin = _constant(concat.name + "/begin", np.array([new] + [0] * len(rest), np.int32), waits)
    size = _constant(concat.name + "/size", np.array([-1] * rows.rank, np.int32), waits)
    kept = tf.NodeDef(name=concat.name + "/kept", op="Slice", input=[str(concat.inputs[0]), begin.name, size.name])
    kept.attr["T"].type, kept.attr["Index"].type = dtype.as_datatype_enum, tf.int32.as_datatype_enum
    graph = concat.graph
    graphdef.insert(graph, [start, begin, size, kept], origin=concat)
    enter.set_input(0, graph[start.name].value)
    concat.set_input(0, graph[kept.name].value)


def _constant(name: str, value: Any, waits: Iterable[Node]) -> Any:
    node = tf.NodeDef(name=name, op="Const", input=["^" + wait.name for wait in waits])
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return node
