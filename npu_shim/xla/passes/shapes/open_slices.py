"""Slices of tensors whose size depends on data: none has fewer rows than 0, or rows that its tensor does not have.

    x[2:] of one row      has no rows in a session; compiled by XLA, tf.shape(x[2:])[0] is -1
    x[:n] of 6 rows       has 6 in a session where n is 8; compiled by XLA, 8

What takes such a tensor divides by -1 or 8, or reads memory that is not there. So the size that XLA keeps is set:

    y = StridedSlice(x, [2], ..)   z = Exp(y)     becomes     y = StridedSlice(x, [2], ..)
                                                              z = Exp(XlaSetDynamicDimensionSize(y, 0, max(size, 0)))
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.legalize.site import NotConstant
from npu_shim.xla.passes.shapes.dynamic_shapes import SOURCES, TAKING, View

SLICE = "StridedSlice"
SCOPE, PART, ROWS = "/counted/", "part", "rows"


def count_rows(module: Module, context: Any = None) -> None:
    """Gives slices of open sizes the rows that there are, in a module with v1 control flow and feeds of full shapes."""
    graph = module.graph
    chosen = [node for node in graph if node.op == SLICE and _leaves_out_rows(node)]
    if not chosen or module.ops().isdisjoint([*SOURCES, *TAKING]):
        return
    view = View(graph)
    for node, shape in [(node, view.open_shape(node.value)) for node in chosen]:
        if shape is not None:
            users = list(node.value.users)
            _require_unit_strides(node)
            places = _places(node, view) if _is_computed(node) else {}
            _require_one_begin(node, shape, places)
            graphdef.insert(graph, _counted(node, shape, places), after=node, origin=node)
            node.value.replace_by(graph[node.name + SCOPE + ROWS].value, users)


def _leaves_out_rows(node: Node) -> bool:
    """Whether a slice leaves out rows by their number, in an axis that it keeps: x[2:], x[:-1], x[n:], x[:n]."""
    begin, end = (_constant(value) for value in node.inputs[1:3])
    shrunk, first, last = (node.attrs.get(name, 0) for name in ("shrink_axis_mask", "begin_mask", "end_mask"))
    count = len(begin if begin is not None else end if end is not None else ())
    if not count:
        return True  # nothing is known of it
    for axis in (k for k in range(count) if not shrunk >> k & 1):
        if not first >> axis & 1 and (begin is None or begin[axis] > 0):
            return True
        if not last >> axis & 1 and (end is None or end[axis] < 0):
            return True
    return False


def _constant(value: Value) -> Any:
    return value.node.attrs["value"].numbers() if value.node.op == "Const" else None


def _require_unit_strides(node: Node) -> None:
    """Raises NotConstant for x[:n:2]: where n is computed, XLA refuses some of them and counts others as x[:n]."""
    if _is_computed(node) and not _is_ones(node.inputs[3]):
        _refuse(node, "has computed ends and a stride other than 1: compiled by XLA it has other rows")


def _is_ones(value: Value) -> bool:
    """Whether a tensor is known to consist of ones, as TensorFlow makes strides: x[:n, 1:] has a Pack of constants."""
    node = value.node
    if node.op == "Const":
        return set(node.attrs["value"].numbers()) == {1}
    parts = {"Pack": node.inputs, "Fill": node.inputs[1:]}.get(node.op)
    return node.op == "OnesLike" if parts is None else all(map(_is_ones, parts))


def _refuse(node: Node, what: str) -> None:
    number = next(number for number in (2, 1) if _constant(node.inputs[number]) is None)
    raise NotConstant("node '%s' (%s) %s; %s" % (node.name, node.op, what, IN_SESSION), node.name, number)


def _require_one_begin(node: Node, shape: tf.TensorShape, places: Mapping[int, tuple[int, int]]) -> None:
    """Raises NotConstant for x[:n, 1:]: where n is computed, XLA begins at 0 in all axes but that of open size."""
    begin, masked = _constant(node.inputs[1]), node.attrs.get("begin_mask", 0)
    opened = [axis for axis in places if shape.as_list()[axis] is None]
    later = [axis for axis, (k, _) in places.items() if not masked >> k & 1 and (begin is None or begin[k])]
    if any(axis not in opened or len(opened) > 1 for axis in later):
        _refuse(node, "has computed ends and begins behind 0 in another axis: compiled by XLA it begins at 0")


def _is_computed(node: Node) -> bool:
    """Whether a slice's begin or end is computed."""
    return any(_constant(value) is None for value in node.inputs[1:3])


def _places(node: Node, view: View) -> dict[int, tuple[int, int]]:
    """Axis of a slice -> (its number among the begins, its axis in what is sliced); empty where these are not known."""
    rank, count = (view.static_shape(node.inputs[k]) for k in (0, 1))
    if rank.rank is None or count.num_elements() is None:
        return {}
    return dict(_kept(node, rank.rank, count.num_elements()))


def _kept(node: Node, rank: int, count: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields (axis of a slice, (number among its `count` begins, axis in what is sliced)) for the axes that it cuts."""
    ellipsis, new, shrunk = (
        {k for k in range(count) if node.attrs.get(name, 0) >> k & 1}
        for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    )
    into = out_of = 0
    for number in range(count):
        whole = rank - (count - len(new - ellipsis) - 1) if number in ellipsis else 1
        added, taken = number in new - ellipsis, number in shrunk - ellipsis - new
        if not (added or taken or number in ellipsis):
            yield into, (number, out_of)
        into += 0 if taken else whole
        out_of += 0 if added else whole


def _counted(node: Node, shape: tf.TensorShape, places: Mapping[int, tuple[int, int]]) -> list[Any]:
    """The nodes behind a slice of this shape, some of whose axes are open; `places` is empty where ends are known."""

    def build(rows: Any, sliced: Any, begin: Any, end: Any) -> None:
        rows = tf.identity(rows, PART)
        for axis, size in enumerate(shape.as_list()):
            if size is None:
                length = _length(node, places[axis], sliced, begin, end) if axis in places else tf.shape(rows)[axis]
                rows = subgraphs.with_rows(rows, tf.constant(axis), tf.maximum(length, 0))
        tf.ensure_shape(rows, shape, name=ROWS)

    values, indices = (tf.as_dtype(node.attrs[key]) for key in ("T", "Index"))
    taken = [(node.name, values), *zip(map(str, node.inputs), (values, indices, indices))]
    return subgraphs.nodes(node.name + SCOPE, taken, build, PART)


def _length(node: Node, place: tuple[int, int], sliced: Any, begin: Any, end: Any) -> Any:
    """How many rows a slice takes of what it slices, along an axis at this place; not positive for none."""
    number, axis = place
    first, last = (node.attrs.get(key, 0) >> number & 1 for key in ("begin_mask", "end_mask"))
    whole = tf.shape(sliced)[axis]
    return (whole if last else _within(end[number], whole)) - (0 if first else _within(begin[number], whole))


def _within(place: Any, size: Any) -> Any:
    """A place as a session counts it: from the end where it is negative, and never beyond an end."""
    place = tf.cast(place, tf.int32)
    return tf.clip_by_value(tf.where_v2(place < 0, place + size, place), 0, size)
