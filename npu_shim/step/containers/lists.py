"""TensorLists, in which loops of TensorFlow 2 keep what their iterations compute: immutable values.

A List has room for as many elements as it will have; a loop in which it grows gives it room for its iterations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules.table import Rule
from npu_shim.step.values import Rows, is_known, traced, whole


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class List:
    """A list of tensors of one shape.

    Attributes:
        buffer: [room, ...], None while nothing is known of the shape of an element.
        length: number of elements, int32.
        dtype: of an element.
        size: number of elements while `buffer` is None.
    """

    buffer: Any
    length: Any
    dtype: Any = dataclasses.field(metadata={"static": True})
    size: int = dataclasses.field(default=0, metadata={"static": True})

    @property
    def room(self) -> int:
        """How many elements it has room for."""
        return self.size if self.buffer is None else int(self.buffer.shape[0])


def _known_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of an element as an op gives it: a vector, -1 for an open dimension; a scalar for an unknown rank."""
    if not is_known(value) or np.ndim(value) == 0:
        return None
    shape = tuple(int(size) for size in value)
    return None if -1 in shape else shape


def _require_tensors(attrs: Any) -> None:
    if isinstance(attrs["element_dtype"], str):
        raise Unsupported("it is a list of lists or of handles")


def reserve(attrs: Any, shape: Any, count: Any) -> List:
    """TensorListReserve."""
    size, element = whole(count), _known_shape(shape)
    _require_tensors(attrs)
    buffer = None if element is None else jnp.zeros((size, *element), attrs["element_dtype"])
    return List(buffer, np.int32(size), attrs["element_dtype"], 0 if element is not None else size)


def empty(attrs: Any, shape: Any, most: Any) -> List:
    """EmptyTensorList."""
    _require_tensors(attrs)
    element = _known_shape(shape)
    buffer = None if element is None else jnp.zeros((0, *element), attrs["element_dtype"])
    return List(buffer, np.int32(0), attrs["element_dtype"])


def _with_buffer(held: List, element: tuple[int, ...]) -> Any:
    return jnp.zeros((held.size, *element), held.dtype) if held.buffer is None else held.buffer


def set_item(attrs: Any, held: List, index: Any, item: Any) -> List:
    """TensorListSetItem."""
    item = traced(item)
    buffer = _with_buffer(held, item.shape)
    if is_known(index) and whole(index) >= buffer.shape[0] and attrs.get("resize_if_index_out_of_bounds"):
        buffer = jnp.pad(buffer, [(0, whole(index) + 1 - buffer.shape[0])] + [(0, 0)] * (buffer.ndim - 1))
        return List(buffer.at[index].set(item), np.int32(buffer.shape[0]), held.dtype)
    return List(buffer.at[index].set(item), held.length, held.dtype)


def get_item(attrs: Any, held: List, index: Any, shape: Any = None) -> Any:
    """TensorListGetItem: zeros where nothing was set."""
    buffer = held.buffer
    if buffer is None:
        element = None if shape is None else _known_shape(shape)
        if element is None:
            raise Unsupported("it reads a list to which nothing was written")
        return jnp.zeros(element, held.dtype)
    return buffer[index]


def push(attrs: Any, held: List, item: Any) -> List:
    """TensorListPushBack: into the room that there is, or, of a list of known length, into new room."""
    item = traced(item)
    buffer = _with_buffer(held, item.shape)
    if is_known(held.length):
        length = whole(held.length)
        if length == buffer.shape[0]:
            buffer = jnp.concatenate([buffer, item[None]])
        else:
            buffer = buffer.at[length].set(item)
        return List(buffer, np.int32(length + 1), held.dtype)
    return List(buffer.at[held.length].set(item), held.length + 1, held.dtype)


def pop(attrs: Any, held: List, shape: Any = None) -> Any:
    """TensorListPopBack."""
    if held.buffer is None:
        raise Unsupported("it takes from a list to which nothing was written")
    last = held.length - np.int32(1)
    return List(held.buffer, last, held.dtype), held.buffer[last]


def stack(attrs: Any, held: List, shape: Any = None) -> Any:
    """TensorListStack."""
    if held.buffer is None:
        element = None if shape is None else _known_shape(shape)
        if element is None and held.size:
            raise Unsupported("it reads a list to which nothing was written")
        return jnp.zeros((held.size, *(element or ())), held.dtype)
    if is_known(held.length):
        return held.buffer[: whole(held.length)]
    return Rows(held.buffer, held.length)


def from_tensor(attrs: Any, value: Any, shape: Any = None) -> List:
    """TensorListFromTensor."""
    if isinstance(value, Rows):
        return List(value.array, value.count, value.array.dtype)
    value = traced(value)
    return List(value, np.int32(value.shape[0]), value.dtype)


def gather(attrs: Any, held: List, indices: Any, shape: Any = None) -> Any:
    """TensorListGather."""
    if held.buffer is None:
        raise Unsupported("it reads a list to which nothing was written")
    return jnp.take(held.buffer, indices, 0, mode="clip")


def scatter(attrs: Any, value: Any, indices: Any, shape: Any, count: Any = None) -> List:
    """TensorListScatter and TensorListScatterV2."""
    value = traced(value)
    if count is not None and whole(count) >= 0:
        size = whole(count)
    elif is_known(indices):
        size = int(indices.max()) + 1 if indices.size else 0
    else:
        raise Unknown(1)
    buffer = jnp.zeros((size, *value.shape[1:]), value.dtype).at[indices].set(value)
    return List(buffer, np.int32(size), value.dtype)


def resize(attrs: Any, held: List, count: Any) -> List:
    """TensorListResize."""
    size = whole(count)
    if held.buffer is None:
        return List(None, np.int32(size), held.dtype, size)
    more = max(0, size - held.buffer.shape[0])
    buffer = jnp.pad(held.buffer, [(0, more)] + [(0, 0)] * (held.buffer.ndim - 1))[:size]
    return List(buffer, np.int32(size), held.dtype)


def concat(attrs: Any, held: List, shape: Any = None, leading: Any = None) -> Any:
    """TensorListConcatV2: all elements have one shape here."""
    value = stack(attrs, held)
    if isinstance(value, Rows):
        raise Unsupported("how many elements its list has depends on data")
    lengths = np.full(value.shape[0], value.shape[1], np.int64)
    return value.reshape((-1, *value.shape[2:])), lengths


def split(attrs: Any, value: Any, shape: Any, lengths: Any) -> List:
    """TensorListSplit, into parts of one length."""
    parts = set(np.atleast_1d(lengths).tolist())
    if len(parts) > 1:
        raise Unsupported("it splits into parts of several lengths: %s" % sorted(parts))
    value = traced(value)
    buffer = value.reshape((len(lengths), *parts, *value.shape[1:]))
    return List(buffer, np.int32(len(lengths)), value.dtype)


def fitted(start: Any, result: Any, most: int | None) -> Any:
    """The first values of a loop's variables, with room in their lists for what the loop's iterations add.

    Args:
        start: a pytree.
        result: shapes and dtypes of what one iteration makes of it.
        most: how often the loop runs at most.
    """
    is_list = lambda value: isinstance(value, List)  # noqa: E731
    return jax.tree.map(lambda one, other: _fitted(one, other, most), start, result, is_leaf=is_list)


def _fitted(held: Any, after: Any, most: int | None) -> Any:
    if not isinstance(held, List) or not isinstance(after, List) or after.buffer is None:
        return held
    room, element = held.room, after.buffer.shape[1:]
    grows = after.buffer.shape[0] - room
    if grows and most is None:
        raise Unsupported("a list grows, and how often is not known when the step is traced")
    buffer = _with_buffer(held, element)
    if grows > 0:
        buffer = jnp.pad(buffer, [(0, grows * (most or 0))] + [(0, 0)] * (buffer.ndim - 1))
    return List(buffer, jnp.asarray(held.length, jnp.int32), held.dtype)


def _length(attrs: Any, held: List) -> Any:
    return held.length


def _element_shape(attrs: Any, held: List) -> Any:
    if held.buffer is None:
        raise Unsupported("the shape of an element of its list is not known")
    return np.array(held.buffer.shape[1:], attrs["shape_type"])


def zeros_like(held: List) -> List:
    """A list of as many zeros."""
    return dataclasses.replace(held, buffer=None if held.buffer is None else jnp.zeros_like(held.buffer))


def add(*values: List) -> List:
    """The sums of the elements of lists; nothing was written to those without a buffer."""
    held = [value for value in values if value.buffer is not None]
    if not held:
        return values[0]
    total = held[0].buffer
    for value in held[1:]:
        total = total + value.buffer
    return dataclasses.replace(held[0], buffer=total)


_RULES = {
    "TensorListReserve": Rule(reserve, known=(1,)),
    "EmptyTensorList": Rule(empty),
    "TensorListSetItem": Rule(set_item),
    "TensorListGetItem": Rule(get_item),
    "TensorListPushBack": Rule(push),
    "TensorListPopBack": Rule(pop),
    "TensorListStack": Rule(stack),
    "TensorListFromTensor": Rule(from_tensor, rows=from_tensor),
    "TensorListGather": Rule(gather),
    "TensorListScatter": Rule(scatter),
    "TensorListScatterV2": Rule(scatter, known=(3,)),
    "TensorListResize": Rule(resize, known=(1,)),
    "TensorListConcat": Rule(concat),
    "TensorListConcatV2": Rule(concat),
    "TensorListSplit": Rule(split, known=(2,)),
    "TensorListLength": Rule(_length),
    "TensorListElementShape": Rule(_element_shape),
}
RULES = {op: row._replace(lists=True) for op, row in _RULES.items()}
