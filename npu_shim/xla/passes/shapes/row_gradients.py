"""Gives the gradients of lookups in loops a fixed size, which XLA needs.

TensorFlow appends the rows of every iteration to those before, beginning with a row of zeros for index 0:

    values = zeros([1, d])      while ...: values = concat([values, new])

If `new` has 2 rows and the loop runs at most 5 times, this becomes

    values = zeros([11, d])     while ...: values = concat([values[2:], new])

The rows are in the same order; a loop that ends early leaves more zeros for index 0 in front of them.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import controls, source_of
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

ACCUMULATOR = re.compile(r"(^|/)b_acc(_\d+)?$")  # TensorFlow's name for what a gradient's loop sums or appends


class _Appended(NamedTuple):
    """The nodes of a loop variable that rows are appended to."""

    merge: Any
    enter: Any
    concat: Any


def of_fixed_size(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef whose loops append no rows to gradients; the same object if they do not.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
        keep: names of the nodes that are fetched or run.

    Raises:
        PlanError: the number of iterations or of rows is unknown; the error names the node.
    """
    nodes = {node.name: node for node in graph_def.node}
    if not any(_appended(node, nodes) for node in graph_def.node):
        return graph_def
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    nodes = {node.name: node for node in made.node}
    found = [each for each in (_appended(node, nodes) for node in made.node) if each]
    folded = static_shapes.fold(graph_def, keep)
    counts = trip_counts.at_most(folded)
    shapes = static_shapes.infer(folded, [each.concat.input[1] for each in found])
    for each in found:
        _fix(made, each, shapes[each.concat.input[1]], counts.get(each.enter.attr["frame_name"].s.decode()), nodes)
    return made


def _appended(merge, nodes):
    """The nodes of a loop variable, if `merge` is its Merge and rows are appended to it; else None."""
    if merge.op != "Merge" or not ACCUMULATOR.search(merge.name):
        return None
    enter, following = (nodes[source_of(text)] for text in merge.input[:2])
    if enter.op != "Enter" or following.op != "NextIteration":
        return None
    concat = nodes[source_of(following.input[0])]
    if concat.op != "ConcatV2" or concat.attr["N"].i != 2:
        return None
    switch = nodes[source_of(concat.input[0])]
    return _Appended(merge, enter, concat) if source_of(switch.input[0]) == merge.name else None


def _fix(made, appended, rows, count, nodes):
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
    dtype = tf.as_dtype(enter.attr["T"].type)
    start = np.zeros([1 + count * new, *rest], dtype.as_numpy_dtype)
    enter.input[0] = _constant(made, enter.name + "/start", start, ["^" + source_of(enter.input[0])])
    waits = controls(nodes[source_of(concat.input[2])])  # the axis is in the loop
    begin = _constant(made, concat.name + "/begin", np.array([new] + [0] * len(rest), np.int32), waits)
    size = _constant(made, concat.name + "/size", np.array([-1] * rows.rank, np.int32), waits)
    kept = made.node.add(name=concat.name + "/kept", op="Slice", input=[concat.input[0], begin, size])
    kept.attr["T"].type, kept.attr["Index"].type = dtype.as_datatype_enum, tf.int32.as_datatype_enum
    concat.input[0] = kept.name


def _constant(made, name, value, waits):
    node = made.node.add(name=name, op="Const", input=waits)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return name
