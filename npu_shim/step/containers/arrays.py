"""TensorArrays: a cell with a buffer [size, ...], made by the first write.

The gradient of an array is another one, to which writes add. An array of dynamic size has room for the iterations of
the loop that writes to it, and is as long as its last written place: a number that is known where each iteration writes
to the place that a counter says (`Scope.finals`), else a Size.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step import guards, sizes
from npu_shim.step.containers import places, rooms, stacks
from npu_shim.step.control_flow import counted
from npu_shim.step.graph import Node
from npu_shim.step.masks import array_of, live
from npu_shim.step.refusals import UNBOUNDED, Unbounded, Unknown, Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.values import Handle, Rows, Size, ints, is_known, traced, whole

KIND = "array"
FLOW = np.float32(0)
I32 = np.dtype(np.int32)


class Facts(NamedTuple):
    """What is known of an array.

    Attributes:
        size: number of elements, of one that grows at its beginning.
        dtype: of the elements.
        shape: of an element, None or with -1 if that is not known.
        grows: whether its size is dynamic.
        forward: key of the array that this is the gradient of, "" for none.
        total: how many instances there are, 0 for one alone.
        length: of one that grows: how long it is when the loops around its writes are over, None if data says.
    """

    size: int
    dtype: Any
    shape: tuple[int, ...] | None
    grows: bool = False
    forward: str = ""
    total: int = 0
    length: int | None = 0


def make(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayV3."""
    size = scope.value(inputs[0])
    if not is_known(size):
        raise Unknown(0)
    attrs, key = node.attrs, "%s:%s%s" % (KIND, scope.path, node.name)
    instance, total = None, 0
    if scope.serial is not None:
        if stacks.is_kept(scope, node.name):
            if scope.total is None:
                raise Unbounded(UNBOUNDED)
            instance, total = jnp.asarray(scope.serial, jnp.int32), scope.total
        else:
            scope.run.cells.pop(key, None)
    scope.run.facts[key] = Facts(
        whole(size), attrs["dtype"], attrs["element_shape"], attrs["dynamic_size"], total=total, length=whole(size)
    )
    return Handle(KIND, key, instance), FLOW


def gradient(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayGradV3 and TensorArrayGradWithShape."""
    handle, flow = inputs[:2]
    key = "%s|%s" % (handle.key, node.attrs["source"])
    facts = scope.run.facts[handle.key]
    scope.run.facts[key] = facts._replace(forward=handle.key)
    if facts.grows and handle.key in scope.run.cells:
        room = _room(handle, scope.run.cells[handle.key][0])
        scope.run.facts[key] = scope.run.facts[key]._replace(size=room)
    return Handle(KIND, key, handle.instance), flow


def _room(handle: Handle, buffer: Any) -> int:
    return int(buffer.shape[handle.instance is not None])


def _cell(scope: Any, handle: Handle, element: tuple[int, ...] | None, dtype: Any) -> Any:
    """The (buffer, size) of an array; a new one for elements of this shape if nothing was written yet."""
    cell = scope.run.cells.get(handle.key)
    if cell is not None:
        return cell
    facts: Facts = scope.run.facts[handle.key]
    if facts.forward and facts.forward in scope.run.cells:
        forward = scope.run.cells[facts.forward][0]
        element = forward.shape[1 + (handle.instance is not None) :]
    elif element is None:
        element = facts.shape
    if element is None or -1 in element:
        raise Unsupported("its TensorArray is read before anything is written to it")
    size = facts.size
    leading = (facts.total, size) if handle.instance is not None else (size,)
    return jnp.zeros((*leading, *element), dtype or facts.dtype), np.int32(facts.size)


def write(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayWriteV3."""
    handle, index, value, flow = inputs[0], *[scope.value(raw) for raw in inputs[1:]]
    if isinstance(value, Rows):
        raise Unsupported("it writes rows whose number depends on data")
    value, index = traced(value), _places(index)
    facts = scope.run.facts[handle.key]
    buffer, size = _cell(scope, handle, value.shape, value.dtype)
    rooms.require_within(scope, node, index, None if _adds(facts) else _room(handle, buffer))
    if _adds(facts):
        buffer = _with_room(scope, node, handle, index, buffer)
    new = _written(scope, node, buffer, handle, index, value), _grown(size, index, facts)
    _set(scope, node, handle, new, size)
    return flow


def _adds(facts: Facts) -> bool:
    """Whether an array grows by what is written: a gradient's is as long as the array whose gradient it is."""
    return facts.grows and not facts.forward


def _places(index: Any) -> Any:
    return sizes.as_tensor(index)


def _limit(scope: Any, handle: Handle, cell: Any) -> Any:
    """How many elements an array has now: a number, or traced."""
    facts: Facts = scope.run.facts[handle.key]
    if not _adds(facts):
        return _room(handle, cell[0])
    return facts.length if facts.length is not None and scope.serial is None else cell[1]


def _with_room(scope: Any, node: Node, handle: Handle, index: Any, buffer: Any) -> Any:
    """The buffer of an array that grows, with room for what a node writes; notes how long the array becomes."""
    last, is_certain = _last(scope, node, index)
    if last is None and scope.most is None:
        raise Unbounded(UNBOUNDED)
    facts: Facts = scope.run.facts[handle.key]
    has = facts.length is not None and last is not None and is_certain
    length = max(facts.length or 0, (last or 0) + 1) if has else None
    scope.run.facts[handle.key] = facts._replace(length=length)
    axis = int(handle.instance is not None)
    more = (max(facts.size, scope.most or 0) if last is None else last + 1) - int(buffer.shape[axis])
    widths = [(0, max(0, more) if at == axis else 0) for at in range(buffer.ndim)]
    return jnp.pad(buffer, widths) if more > 0 else buffer


def _last(scope: Any, node: Node, index: Any) -> tuple[int | None, bool]:
    """(The last place that a node writes to, None if that is not known; whether it certainly writes there)."""
    counts = counted.values_of(scope, node.inputs[1], index)
    return counts.last, counts.is_exact and not scope.guard(node.name) and not scope.decided


def _grown(size: Any, index: Any, facts: Facts) -> Any:
    if not facts.grows:
        return size
    library = np if is_known(size, index) else jnp
    return library.maximum(size, np.int32(1) + index.astype(np.int32))


def _written(scope: Any, node: Node, buffer: Any, handle: Handle, index: Any, value: Any) -> Any:
    """A buffer with elements written, or added to a gradient's; under a guard, where that holds."""
    adds, guard = bool(scope.run.facts[handle.key].forward), scope.guard(node.name)
    if handle.instance is None and np.ndim(index) == 0 and not guard:
        places.require_shape(buffer.shape[1:], value.shape)  # before a sum would repeat it
        return places.put(buffer, index, places.taken(buffer, index) + value if adds else value)
    places.require_shape(buffer.shape[1 if handle.instance is None else 2 :], value.shape[np.ndim(index) :])
    at = buffer.at[index] if handle.instance is None else buffer.at[handle.instance, index]
    if guard:  # element by element: a choice of one of two buffers would be a copy
        value = guards.chosen(scope.predicates, guard, value, jnp.zeros_like(value) if adds else at.get())
    return at.add(value) if adds else at.set(value)


def _set(scope: Any, node: Node, handle: Handle, new: Any, size: Any) -> None:
    """Sets a cell (buffer, size); `size` is what it stays under a guard that does not hold."""
    guard, (buffer, grown) = scope.guard(node.name), new
    if guard and grown is not size:
        grown = guards.chosen(scope.predicates, guard, grown, size)
    scope.run.cells[handle.key] = buffer, grown
    if scope.serial is None:  # else the loop around it looks at the end
        rooms.require_enough(scope.run, handle.key)


def read(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayReadV3."""
    handle, index = inputs[0], _places(scope.value(inputs[1]))
    cell = buffer, _ = _cell(scope, handle, None, node.attrs["dtype"])
    rooms.require_within(scope, node, index, _limit(scope, handle, cell))
    return places.taken(buffer, index) if handle.instance is None else buffer[handle.instance, index]


def gather(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayGatherV3."""
    handle, indices = inputs[0], scope.value(inputs[1])
    element = node.attrs.get("element_shape")
    cell = buffer, _ = _cell(scope, handle, element if element and -1 not in element else None, node.attrs["dtype"])
    rooms.require_within(scope, node, indices, _limit(scope, handle, cell))
    buffer = buffer if handle.instance is None else buffer[handle.instance]
    if isinstance(indices, Rows):
        return Rows(jnp.take(buffer, indices.array, 0, mode="clip"), indices.count)
    if is_known(indices) and np.array_equal(indices, np.arange(buffer.shape[0])):
        return buffer
    return jnp.take(buffer, indices, 0, mode="clip")


def scatter(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayScatterV3."""
    handle, indices, value, flow = inputs[0], *[scope.value(raw) for raw in inputs[1:]]
    if isinstance(value, Rows) or isinstance(indices, Rows):
        return _scatter_rows(scope, node, inputs, indices, value)
    value = traced(value)
    facts = scope.run.facts[handle.key]
    old, before = _opened(scope, node, handle, value, 1 + int(indices.max(initial=-1)) if is_known(indices) else 0)
    rooms.require_within(scope, node, indices, _room(handle, old[0]))
    is_all = is_known(indices) and np.array_equal(indices, np.arange(old[0].shape[0])) and handle.instance is None
    is_new = is_all and not facts.forward and not scope.guard(node.name)
    new = value if is_new else _written(scope, node, old[0], handle, indices, value)
    _set(scope, node, handle, (new, old[1]), before)
    return flow


def _opened(scope: Any, node: Node, handle: Handle, parts: Any, length: int) -> Any:
    """(The (buffer, size) of an array to which parts are written, as long as they need if it grows; its old size)."""
    facts: Facts = scope.run.facts[handle.key]
    buffer, size = _cell(scope, handle, parts.shape[1:], parts.dtype)
    if not _adds(facts) or length <= facts.size:
        return (buffer, size), size
    is_certain = facts.length is not None and scope.is_certain and not scope.guard(node.name)
    known = max(facts.length or 0, length) if is_certain else None
    scope.run.facts[handle.key] = facts._replace(length=known)
    axis = int(handle.instance is not None)
    more = max(0, length - _room(handle, buffer))
    buffer = jnp.pad(buffer, [(0, more if at == axis else 0) for at in range(buffer.ndim)]) if more else buffer
    return (buffer, (np if is_known(size) else jnp).maximum(size, np.int32(length))), size


def _scatter_rows(scope: Any, node: Node, inputs: Sequence[Any], indices: Any, value: Any) -> Any:
    """The same of as many rows as data says, to an array of a size that is given."""
    handle = inputs[0]
    facts: Facts = scope.run.facts[handle.key]
    if not isinstance(value, Rows) or (facts.grows and not facts.forward):
        raise Unsupported("it writes rows whose number depends on data to an array that grows")
    buffer, size = _cell(scope, handle, value.array.shape[1:], value.array.dtype)
    index = jnp.asarray(array_of(indices))
    rooms.require_within(scope, node, Rows(index, value.count), _room(handle, buffer))
    index = live(index, _room(handle, buffer), value)
    _set(scope, node, handle, (_written(scope, node, buffer, handle, index, value.array), size), size)
    return inputs[3]


def size(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArraySizeV3."""
    handle = inputs[0]
    facts: Facts = scope.run.facts[handle.key]
    cell = scope.run.cells.get(handle.key)
    if facts.grows and handle.instance is not None:
        raise Unsupported("it asks for the size of one of several arrays that grow")
    if cell is None or not facts.grows:
        return np.int32(facts.size)
    if facts.length is not None and scope.serial is None:
        return np.int32(facts.length)
    return cell[1] if is_known(cell[1]) else sizes.of([Size(cell[1], _room(handle, cell[0]), facts.size)], I32, ())


def concat(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArrayConcatV3: all elements have one shape here."""
    handle = inputs[0]
    buffer, _ = _cell(scope, handle, None, node.attrs["dtype"])
    buffer = buffer if handle.instance is None else buffer[handle.instance]
    lengths = np.full(buffer.shape[0], buffer.shape[1], np.int64)
    return buffer.reshape((buffer.shape[0] * buffer.shape[1], *buffer.shape[2:])), lengths


def split(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """TensorArraySplitV3, into parts of one length."""
    handle, value, lengths, flow = inputs[0], *[scope.value(raw) for raw in inputs[1:]]
    if not is_known(lengths):
        raise Unknown(2)
    parts = set(ints(lengths))
    if len(parts) > 1:
        raise Unsupported("it splits into parts of several lengths: %s" % sorted(parts))
    value = traced(value)
    value = value.reshape((len(lengths), *parts, *value.shape[1:]))
    old, before = _opened(scope, node, handle, value, len(lengths))
    if len(lengths) != _room(handle, old[0]):
        raise Unsupported("it splits into %d parts, its TensorArray has %d" % (len(lengths), _room(handle, old[0])))
    new = _written(scope, node, old[0], handle, np.arange(len(lengths)), value)
    _set(scope, node, handle, (new, old[1]), before)
    return flow


RULES = {
    "TensorArrayV3": Effect(make),
    "TensorArrayGradV3": Effect(gradient),
    "TensorArrayGradWithShape": Effect(gradient),
    "TensorArrayWriteV3": Effect(write),
    "TensorArrayReadV3": Effect(read),
    "TensorArrayGatherV3": Effect(gather),
    "TensorArrayScatterV3": Effect(scatter),
    "TensorArraySizeV3": Effect(size),
    "TensorArrayConcatV3": Effect(concat),
    "TensorArraySplitV3": Effect(split),
    "TensorArrayCloseV3": Effect(lambda scope, node, inputs: ()),
}
