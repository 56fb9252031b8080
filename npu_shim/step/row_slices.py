"""Slices of data-sized rows, and slices whose limits depend on data, which give such rows; their gradients.

A slice is taken by its entries, one for each axis. Those that take one element are followed at once; of the first axis
that is left a range is taken by its indices: as many as there is room for, of which a traced number is there. The
other entries are known.

A slice of a size that is known is that of a place, which may be traced; and its gradient, a Pad, has the shape of what
it is taken of:

    tf.slice(x, [0, i, 0], [2, 1, 3])       its gradient is padded by [[0, 0], [i, 5 - 1 - i], [0, 0]]
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import schedule, told
from npu_shim.step.containers import rooms
from npu_shim.step.frames import value_source
from npu_shim.step.graph import Node
from npu_shim.step.masks import array_of, cleared
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.values import Dims, Rows, Size, Turned, ints, is_known, is_tensor, traced

OPS = frozenset(["StridedSlice", "Slice", "StridedSliceGrad", "Pad"])
BEHIND = "an axis behind the first has limits that depend on data"


class Entry(NamedTuple):
    """What is taken of one axis.

    Attributes:
        kind: "range", "element", "new" or "rest".
        low, high: int, traced int32, or None for the end of the axis.
        step: int.
        most: how many elements it may have, None if that is not known.
    """

    kind: str
    low: Any = None
    high: Any = None
    step: int = 1
    most: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether its limits are."""
        return not any(isinstance(limit, jax.Array) for limit in (self.low, self.high))

    @property
    def index(self) -> Any:
        """What numpy calls it."""
        return {"element": self.low, "new": None, "rest": Ellipsis}.get(
            self.kind, slice(self.low, self.high, self.step)
        )  # fmt: skip


def is_open(node: Node, inputs: Sequence[Any]) -> bool:
    """Whether a node takes a slice of rows, or one whose limits are not known."""
    if node.op == "Pad":
        return is_tensor(inputs[0]) and isinstance(inputs[1], jax.Array)
    if node.op not in OPS or (isinstance(inputs[0], Dims) and node.op != "StridedSliceGrad"):
        return False
    if any(isinstance(value, (Rows, Dims)) for value in inputs):
        return True
    return not is_known(inputs[1], inputs[2])


def taken(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """What such a node gives: Rows, or a tensor where single elements are taken.

    Raises:
        Unknown: a limit is computed of whole numbers that are fed one by one: a program for each of them is better; or
            an axis behind the first has limits that are not known.
    """
    if node.op == "Pad":
        return _put_back(scope, node, *inputs)
    places = _places(scope, node, inputs)
    if places is not None:
        return _at(scope, node, inputs[0], *places)
    try:
        return _taken(scope, node, inputs)
    except _Behind as reason:
        raise Unknown(_open_input(inputs), str(reason)) from None


def _places(scope: Any, node: Node, inputs: Sequence[Any]) -> tuple[list[Any], list[int]] | None:
    """(Where a Slice begins, int or traced; its sizes), of a tensor by sizes that are known; None for other slices."""
    if node.op != "Slice" or not is_tensor(inputs[0]) or not isinstance(inputs[1], jax.Array):
        return None
    if not is_known(inputs[2]):
        return None
    places = list(map(_count, _numbers(scope, node.inputs[1], inputs[1])))
    sizes = [
        limit - at if size < 0 and isinstance(at, int) else size
        for at, size, limit in zip(places, ints(inputs[2]), inputs[0].shape)
    ]
    return None if min(sizes, default=0) < 0 else (places, sizes)


def _at(scope: Any, node: Node, x: Any, places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """A slice at a traced place, all of which must be there."""
    for at, size, limit in zip(places, sizes, x.shape):
        rooms.require_where(scope, node, (at >= 0) & (at <= np.int32(limit - size)))
    return jax.lax.dynamic_slice(traced(x), [jnp.asarray(at, np.int32) for at in places], sizes)


def _put_back(scope: Any, node: Node, gradient: Any, paddings: Any) -> Any:
    """A slice's gradient: zeros but where the slice was taken.

    Raises:
        Unknown: nothing shows how large that is.
    """
    more = _left_out(scope, scope.nodes[node.inputs[1][0]])
    if more is None or paddings.shape != (gradient.ndim, 2):
        raise Unknown(1)
    rooms.require_where(scope, node, jnp.all(paddings >= 0))
    shape = [size + number for size, number in zip(gradient.shape, more)]
    places = paddings[:, 0].astype(np.int32)
    return jax.lax.dynamic_update_slice(jnp.zeros(shape, gradient.dtype), gradient, list(places))


def _left_out(scope: Any, paddings: Node) -> tuple[int, ...] | None:
    """How much larger what a slice was taken of is, by paddings that are its place and (that - its place)."""
    columns = [scope.nodes[name] for name, _ in paddings.inputs[:2]]
    if paddings.op != "ConcatV2" or len(paddings.inputs) != 3 or any(one.op != "Reshape" for one in columns):
        return None
    place, (name, _) = (value_source(column.inputs[0], scope.nodes) for column in columns)
    behind = scope.nodes[name]
    if behind.op != "Sub" or value_source(behind.inputs[1], scope.nodes) != place:
        return None
    number = scope.value(scope.raw(behind.inputs[0])) if behind.inputs[0][0] in scope.values else None
    return ints(number) if is_known(number) else None


class _Behind(Unsupported):
    pass


def _open_input(inputs: Sequence[Any]) -> int:
    return 1 if not is_known(inputs[1]) else 2


def _taken(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    entries = _entries(scope, node, inputs)
    if _is_asked(scope, node, _without_rest(list(entries), _rank(node, inputs[0]))):
        raise _Behind(BEHIND)
    if node.op != "StridedSliceGrad":
        if not any(map(_is_open, entries)) or not _are_fed(scope, node, (1, 2)):
            return _counted_alike(scope, inputs[0], entries)
        raise Unknown(_open_input(inputs))
    shape, gradient = inputs[0], inputs[4]
    sizes = shape.sizes if isinstance(shape, Dims) else ints(shape)
    room = tuple(size.most if isinstance(size, Size) else size for size in sizes)
    count = sizes[0].count if isinstance(sizes[0], Size) else None

    def forward(array: Any) -> Any:
        part = _sliced(array if count is None else Rows(array, count), entries)
        return array_of(part)

    like = jax.ShapeDtypeStruct(room, gradient.dtype if is_tensor(gradient) else gradient.array.dtype)
    if isinstance(gradient, Rows):
        g = cleared(gradient)
    else:
        g = _with_room(traced(gradient), jax.eval_shape(forward, like).shape)
        part = _sliced(jnp.zeros(room, bool) if count is None else Rows(jnp.zeros(room, bool), count), entries)
        if isinstance(part, Rows):
            rooms.require_where(scope, node, part.count == np.int32(gradient.shape[0]))
    (result,) = jax.linear_transpose(forward, like)(g)
    return result if count is None else Rows(result, count)


def _rank(node: Node, x: Any) -> int:
    """How many dimensions a slice is of; of a gradient x is the shape."""
    if node.op == "StridedSliceGrad":
        return len(x.sizes if isinstance(x, Dims) else ints(x))
    return int(getattr(x, "array", x).ndim)


def _is_asked(scope: Any, node: Node, entries: Sequence[Entry]) -> bool:
    """Whether the session is asked for the limits of an axis behind the first, where it can know them.

    Each number has a program of its own then, in which whatever takes the slice knows its shape.
    """
    kept = [entry for entry in entries if entry.kind != "element"]
    if not any(map(_is_open, kept[1:])) or not told.can_ask(scope):
        return False
    graph, limits = scope.schedule.graph, [scope.nodes[name] for name, _ in node.inputs[1:3]]
    variables = [name for name, other in scope.nodes.items() if other.op in schedule.VARIABLES]
    return not any(schedule.sources_behind(graph, limit, variables) for limit in limits)


def _with_room(gradient: Any, shape: Sequence[int]) -> Any:
    """A gradient of a known number of rows, of a slice that has room for more."""
    more = shape[0] - gradient.shape[0] if shape and gradient.ndim == len(shape) else 0
    return jnp.pad(gradient, [(0, more), *[(0, 0)] * (gradient.ndim - 1)]) if more > 0 else gradient


def _counted_alike(scope: Any, x: Any, entries: Sequence[Entry]) -> Any:
    """What is taken; of slices that leave out as many rows of the same, the numbers are one value."""
    result, first = _sliced(x, entries), next((entry for entry in entries if entry.kind != "element"), None)
    if first is None or first is not entries[0] or not (isinstance(result, Rows) and isinstance(x, Rows)):
        return result
    if first.kind != "range" or not first.is_known:
        return result
    low, high = first.low or 0, 0 if first.high is None else first.high
    if low < 0 or first.step != 1 or (first.high is not None and high >= 0):
        return result
    _, count = scope.left.setdefault((id(x.count), low - high), (x.count, result.count))
    return Rows(result.array, count)


def _is_open(entry: Entry) -> bool:
    """Whether it takes as many elements as traced limits say."""
    return entry.kind == "range" and not entry.is_known


def _are_fed(scope: Any, node: Node, numbers: Sequence[int]) -> bool:
    """Whether the limits are computed of feeds alone that are single whole numbers."""
    feeds = scope.run.program.feeds if scope.schedule.graph is scope.run.program.graph else {}
    behind = [
        scope.value(scope.raw((fed, 0)))
        for number in numbers
        for fed in schedule.sources_behind(scope.schedule.graph, scope.nodes[node.inputs[number][0]], feeds)
    ]
    open_ones = [value for value in behind if not is_known(value)]
    return bool(open_ones) and all(is_tensor(v) and v.ndim == 0 and v.dtype.kind in "iu" for v in open_ones)


# -- entries -----------------------------------------------------------------------------------------------------------


def _entries(scope: Any, node: Node, inputs: Sequence[Any]) -> list[Entry]:
    begins, ends = (_numbers(scope, node.inputs[number], inputs[number]) for number in (1, 2))
    if node.op == "Slice":
        return [_of_size(begin, size) for begin, size in zip(begins, ends)]
    if not is_known(inputs[3]):
        raise Unknown(3)
    strides = ints(inputs[3])
    return [_entry(node.attrs, at, *limits) for at, limits in enumerate(zip(begins, ends, strides))]


def _numbers(scope: Any, source: Any, value: Any) -> list[Any]:
    """The elements of a vector of limits: ints where they are known."""
    if is_known(value):
        return list(ints(value)) if value.size else []
    if isinstance(value, Dims):
        return [part if isinstance(part, Size) else int(part) for part in value.sizes]
    source_node = scope.nodes[source[0]]
    if source_node.op == "Pack" and all(part in scope.values for part, _ in source_node.inputs):
        return [_number(scope.value(scope.raw(part))) for part in source_node.inputs]
    if isinstance(value, Rows):
        raise Unsupported("its limits are as many as data says")
    return [value[at] for at in range(value.shape[0])]


def _number(part: Any) -> Any:
    if isinstance(part, Dims):
        (part,) = part.sizes
    return part if isinstance(part, (Size, jax.Array)) else int(part)


def _count(number: Any) -> Any:
    """A limit: int, traced, or None."""
    if isinstance(number, Size):
        return number.count
    return number.astype(np.int32) if isinstance(number, jax.Array) else number


def _most(number: Any) -> int | None:
    """How much a limit may be, None if that is not known."""
    least, most = (number.least, number.most) if isinstance(number, Size) else (number, number)
    return most if isinstance(least, int) and least >= 0 else None


def _of_size(begin: Any, size: Any) -> Entry:
    low, length = _count(begin), _count(size)
    if isinstance(length, int) and length < 0:
        return Entry("range", _behind(low, 1))
    return Entry("range", _behind(low, 1), low + length, most=_most(size))


def _behind(low: Any, step: int) -> Any:
    """Where a range begins; None if that is at the first element."""
    return None if isinstance(low, int) and low == 0 and step > 0 else low


def _entry(attrs: Any, at: int, low: Any, high: Any, step: int) -> Entry:
    has = lambda mask: bool(attrs[mask] >> at & 1)  # noqa: E731
    if has("ellipsis_mask"):
        return Entry("rest")
    if has("new_axis_mask"):
        return Entry("new")
    if has("shrink_axis_mask"):
        return Entry("element", _count(low))
    most = _most(high) if step > 0 and not has("end_mask") else None
    return Entry(
        "range", None if has("begin_mask") else _count(low), None if has("end_mask") else _count(high), step, most
    )


# -- what is taken -----------------------------------------------------------------------------------------------------


def _sliced(x: Any, entries: Sequence[Entry]) -> Any:
    array, count = (x.array, x.count) if isinstance(x, Rows) else (traced(x), None)
    entries = _without_rest(list(entries), array.ndim)
    while entries and entries[0].kind == "element":
        array, count = _element(array, count, entries.pop(0).low), None
    if not entries:
        return array if count is None else Rows(array, count)
    first, others = entries[0], entries[1:]
    if any(map(_is_open, others)):
        return _sliced_behind(array, count, entries)
    index = (slice(None), *(entry.index for entry in others))
    if count is None and not _is_open(first):
        return array[tuple(entry.index for entry in entries)]
    if first.kind == "new":
        raise Unsupported("it puts a dimension before rows whose number depends on data")
    if first.low is not None or first.high is not None or first.step != 1:
        array, count = _range(array, count, first)
    return Rows(array[index], count)


def _sliced_behind(array: Any, count: Any, entries: Sequence[Entry]) -> Turned:
    """A slice of a tensor of which one axis behind the first has traced limits."""
    at, *others = [at for at, entry in enumerate(entries) if _is_open(entry)]
    if count is not None or others:
        raise _Behind(BEHIND)
    index = [slice(None) if number == at else entry.index for number, entry in enumerate(entries)]
    axis = sum(entry.kind != "element" for entry in entries[:at])
    part, number = _range(jnp.moveaxis(array[tuple(index)], axis, 0), None, entries[at])
    return Turned(jnp.moveaxis(part, 0, axis), number, axis)


def _without_rest(entries: list[Entry], rank: int) -> list[Entry]:
    """Entries in which whole ranges stand for an Ellipsis."""
    at = next((at for at, entry in enumerate(entries) if entry.kind == "rest"), None)
    if at is None:
        return entries
    axes = rank - sum(entry.kind in ("range", "element") for entry in entries)
    return [*entries[:at], *[Entry("range")] * axes, *entries[at + 1 :]]


def _element(array: Any, count: Any, at: Any) -> Any:
    """One element of the first axis, from the end if `at` is below zero."""
    size = np.int32(array.shape[0]) if count is None else count
    at = jnp.asarray(at).astype(np.int32)
    return jnp.take(array, jnp.where(at < 0, at + size, at), 0, mode="clip")


def _range(array: Any, count: Any, entry: Entry) -> tuple[Any, Any]:
    """(The rows of a range with room for all that there may be, how many there are)."""
    most = array.shape[0]
    if _is_first(entry, most if count is None else None, count):
        return jnp.take(array, np.arange(_room(entry, most)), 0), entry.high
    size = jnp.int32(most) if count is None else count
    forward = entry.step > 0
    least = jnp.int32(0 if forward else -1)

    def bounded(limit: Any, default: Any) -> Any:
        if limit is None:
            return default
        limit = jnp.asarray(limit).astype(np.int32)
        return jnp.clip(jnp.where(limit < 0, limit + size, limit), least, size + least)

    start = bounded(entry.low, jnp.int32(0) if forward else size + least)
    stop = bounded(entry.high, size if forward else least)
    step = np.int32(entry.step)
    away = np.int32(1 if forward else -1)
    number = jnp.maximum((stop - start + step - away) // step, np.int32(0))
    places = start + step * np.arange(_room(entry, most), dtype=np.int32)
    return jnp.take(array, places, 0, mode="clip"), number


def _is_first(entry: Entry, size: int | None, count: Any) -> bool:
    """Whether a range is of the first elements, of which there are as many as its end says."""
    if isinstance(entry.low, jax.Array) or entry.low or entry.step != 1 or not isinstance(entry.high, jax.Array):
        return False
    return entry.high is count or (size is not None and entry.most is not None and entry.most <= size)


def _room(entry: Entry, most: int) -> int:
    """The most elements that a range has, of an axis of at most this size."""
    if not entry.is_known:
        return -(-min(most, most if entry.most is None else entry.most) // abs(entry.step))
    turns = [abs(limit) + by for limit in (entry.low, entry.high) if limit is not None for by in (-1, 0, 1)]
    sizes = {most, *(size for size in turns if 0 <= size <= most)}
    return max(len(range(size)[entry.index]) for size in sizes)
