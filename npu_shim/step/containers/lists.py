"""TensorLists, in which loops of TensorFlow 2 keep what their iterations compute: immutable values.

A List has room for as many elements as it will have; a loop in which it grows gives it room for its iterations. Its
elements are tensors of one shape, or Lists or Optionals of one structure (pytrees). A length that is known stays known
in loops that do not change it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers import places
from npu_shim.step.masks import there
from npu_shim.step.refusals import UNBOUNDED, Unbounded, Unknown, Unsupported
from npu_shim.step.rules.table import Rule
from npu_shim.step.values import Rows, is_known, traced, whole, xp


@jax.tree_util.register_pytree_node_class
class Fixed:
    """The buffer of a list all of whose elements are one known value, so that it is known when it is taken.

    Attributes:
        value: np.ndarray.
    """

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def _told(self) -> Any:
        return self.value.dtype.name, self.value.shape, self.value.tobytes()

    def tree_flatten(self) -> tuple[tuple[()], Fixed]:
        """As JAX asks it: all of it is structure."""
        return (), self

    @classmethod
    def tree_unflatten(cls, static: Fixed, parts: tuple[()]) -> Fixed:
        """As JAX asks it."""
        return static


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class List:
    """A list of tensors of one shape, or of pytrees of one structure.

    Attributes:
        buffer: a pytree of [room, ...], None while nothing is known of an element; or Fixed.
        length: number of elements, int32; one that is known is part of the structure of the pytree that a List is.
        dtype: of an element.
        size: number of elements while `buffer` is None.
        is_set: whether it grows by the places to which its elements are set, and not by one with each.
        is_cut: whether elements that it had stand behind its length; else these are zeros.
    """

    buffer: Any
    length: Any
    dtype: Any
    size: int = 0
    is_set: bool = False
    is_cut: bool = False

    @property
    def room(self) -> int:
        """How many elements it has room for."""
        leaves = jax.tree.leaves(self.buffer)
        return int(leaves[0].shape[0]) if leaves else self.size

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """As JAX asks it."""
        if is_known(self.length):
            return (self.buffer,), (self.dtype, self.size, self.is_set, self.is_cut, whole(self.length))
        return (self.buffer, self.length), (self.dtype, self.size, self.is_set, self.is_cut, None)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], parts: tuple[Any, ...]) -> List:
        """As JAX asks it."""
        dtype, size, is_set, is_cut, length = static
        return cls(parts[0], parts[1] if length is None else np.int32(length), dtype, size, is_set, is_cut)


def _known_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of an element as an op gives it: a vector, -1 for an open dimension; a scalar for an unknown rank."""
    if not is_known(value) or np.ndim(value) == 0:
        return None
    shape = tuple(int(size) for size in value)
    return None if -1 in shape else shape


def _require_values(attrs: Any) -> None:
    if attrs["element_dtype"] in ("resource", "string"):
        raise Unsupported("it is a list of handles or of text")


def reserve(attrs: Any, shape: Any, count: Any) -> List:
    """TensorListReserve."""
    size, element = whole(count), _known_shape(shape)
    _require_values(attrs)
    buffer = _empty_buffer(attrs, element, size)
    return List(buffer, np.int32(size), attrs["element_dtype"], 0 if element is not None else size)


def empty(attrs: Any, shape: Any, most: Any) -> List:
    """EmptyTensorList."""
    _require_values(attrs)
    buffer = _empty_buffer(attrs, _known_shape(shape), 0)
    return List(buffer, np.int32(0), attrs["element_dtype"])


def _empty_buffer(attrs: Any, element: tuple[int, ...] | None, size: int) -> Any:
    dtype = attrs["element_dtype"]
    return None if element is None or dtype == "variant" else jnp.zeros((size, *element), dtype)


def _with_buffer(held: List, item: Any) -> Any:
    """Its buffer; a new one for elements like `item`."""
    if isinstance(held.buffer, Fixed):
        if not is_known(held.length):
            raise Unsupported("it keeps one known value, and others")
        return jnp.broadcast_to(held.buffer.value, (whole(held.length), *held.buffer.value.shape))
    if held.buffer is not None:
        return held.buffer
    return jax.tree.map(lambda part: jnp.zeros((held.size, *part.shape), part.dtype), item)


def _with_room(buffer: Any, more: int) -> Any:
    return jax.tree.map(lambda part: jnp.pad(part, [(0, more)] + [(0, 0)] * (part.ndim - 1)), buffer)


def _without_cut(held: List, buffer: Any) -> Any:
    """The buffer of a list that may become longer: what has been cut off is zeros."""
    if not held.is_cut:
        return buffer
    is_there = there(held.room, held.length)
    return jax.tree.map(lambda part: jnp.where(is_there.reshape(-1, *(1,) * (part.ndim - 1)), part, 0), buffer)


def _put(buffer: Any, at: Any, item: Any) -> Any:
    if jax.tree.structure(buffer) != jax.tree.structure(item):
        raise Unsupported(
            "its elements have several structures: %s %s" % (jax.tree.structure(buffer), jax.tree.structure(item))
        )
    return jax.tree.map(lambda held, part: places.put(held, at, part), buffer, item)


def set_item(attrs: Any, held: List, index: Any, item: Any) -> List:
    """TensorListSetItem: a list that grows by itself gets room as `push` gives it."""
    item = traced(item)
    buffer, length = _with_buffer(held, item), held.length
    if attrs.get("resize_if_index_out_of_bounds"):
        buffer = _without_cut(held, buffer)
        room = held.room if held.buffer is not None else held.size
        more = whole(index) + 1 - room if is_known(index) else int(is_known(length))
        buffer = _with_room(buffer, more) if more > 0 else buffer
        last = np.asarray(index).astype(np.int32) if is_known(index) else index.astype(np.int32)
        length = xp(index, length).maximum(length, last + np.int32(1))
    return List(_put(buffer, index, item), length, held.dtype, is_set=held.is_set or not is_known(length))


def get_item(attrs: Any, held: List, index: Any, shape: Any = None) -> Any:
    """TensorListGetItem: zeros where nothing was set."""
    buffer = held.buffer
    if isinstance(buffer, Fixed):
        return buffer.value
    if buffer is None:
        element = None if shape is None else _known_shape(shape)
        if element is None:
            raise Unsupported("it reads a list to which nothing was written")
        return jnp.zeros(element, held.dtype)
    return jax.tree.map(lambda part: places.taken(part, index), buffer)


def push(attrs: Any, held: List, item: Any) -> List:
    """TensorListPushBack: into the room that there is, or, of a list of known length, into new room."""
    if is_known(item) and _is_fixed(held, item):
        return List(Fixed(item), held.length + np.int32(1), held.dtype)
    item = traced(item)
    buffer = _with_buffer(held, item)
    if is_known(held.length):
        length = whole(held.length)
        leaves = jax.tree.leaves(buffer)  # none of lists that are known, each of which is the same
        buffer = _with_room(buffer, 1) if leaves and length == leaves[0].shape[0] else buffer
        return List(_put(buffer, length, item), np.int32(length + 1), held.dtype)
    return List(_put(buffer, held.length, item), held.length + 1, held.dtype)


def _is_fixed(held: List, item: Any) -> bool:
    if isinstance(held.buffer, Fixed):
        return bool(held.buffer == Fixed(item))
    return held.room == 0 and is_known(held.length) and whole(held.length) == 0


def pop(attrs: Any, held: List, shape: Any = None) -> Any:
    """TensorListPopBack."""
    if held.buffer is None:
        raise Unsupported("it takes from a list to which nothing was written")
    last = held.length - np.int32(1)
    if isinstance(held.buffer, Fixed):
        return List(held.buffer, last, held.dtype), held.buffer.value
    return List(held.buffer, last, held.dtype), jax.tree.map(lambda part: places.taken(part, last), held.buffer)


def stack(attrs: Any, held: List, shape: Any = None) -> Any:
    """TensorListStack."""
    if held.buffer is None:
        element = None if shape is None else _known_shape(shape)
        if element is None and held.size:
            raise Unsupported("it reads a list to which nothing was written")
        return jnp.zeros((held.size, *(element or ())), held.dtype)
    if is_known(held.length):
        return _with_buffer(held, None)[: whole(held.length)]
    if isinstance(held.buffer, Fixed):
        raise Unsupported("how many elements its list has depends on data")
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
    return jnp.take(_with_buffer(held, None), indices, 0, mode="clip")


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


def scatter_into(attrs: Any, held: List, value: Any, indices: Any) -> List:
    """TensorListScatterIntoExistingList."""
    value = traced(value)
    buffer = _with_buffer(held, jax.ShapeDtypeStruct(value.shape[1:], value.dtype))
    places.require_shape(buffer.shape[1:], value.shape[1:])
    return dataclasses.replace(held, buffer=jnp.asarray(buffer).at[indices].set(value))


def resize(attrs: Any, held: List, count: Any) -> List:
    """TensorListResize; to a length that is not known it cuts elements off, as the gradient of what it appends does."""
    if not is_known(count):
        if held.buffer is None or isinstance(held.buffer, Fixed):
            raise Unknown(1)
        return dataclasses.replace(held, length=jnp.asarray(count, jnp.int32), is_cut=True)
    size = whole(count)
    if size < 0:
        raise Unsupported("it gives its list %d elements" % size)
    if held.buffer is None:
        return List(None, np.int32(size), held.dtype, size)
    buffer = _without_cut(held, _with_buffer(held, None))
    buffer = _with_room(buffer, max(0, size - buffer.shape[0]))[:size]
    return List(buffer, np.int32(size), held.dtype)


def concat(attrs: Any, held: List, shape: Any = None, leading: Any = None) -> Any:
    """TensorListConcatV2: all elements have one shape here."""
    value = stack(attrs, held)
    if isinstance(value, Rows):
        raise Unsupported("how many elements its list has depends on data")
    lengths = np.full(value.shape[0], value.shape[1], np.int64)
    return value.reshape((value.shape[0] * value.shape[1], *value.shape[2:])), lengths


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
    if isinstance(after.buffer, Fixed):
        return List(after.buffer, _carried_length(held.length, after.length), held.dtype)
    grows = after.room - held.room
    if grows and most is None:
        raise Unbounded(UNBOUNDED)
    element = jax.tree.map(lambda part: jax.ShapeDtypeStruct(part.shape[1:], part.dtype), after.buffer)
    buffer = _with_buffer(held, element)
    if grows > 0:
        buffer = _with_room(buffer, grows * (most or 0))
    length = _carried_length(held.length, after.length)
    return List(buffer, length, held.dtype, is_set=after.is_set, is_cut=held.is_cut or after.is_cut)


def is_fixed(value: Any) -> bool:
    """Whether it is a list of one known value."""
    return isinstance(value, List) and isinstance(value.buffer, Fixed)


def added(before: Any, after: Any) -> int | None:
    """How many elements an iteration adds to a list, takes from it if that is below 0; None if it is not known."""
    if not isinstance(before, List) or not isinstance(after, List) or not is_known(before.length, after.length):
        return None
    return whole(after.length) - whole(before.length)


def _carried_length(before: Any, after: Any) -> Any:
    """The length of a list in a loop: known if the loop does not change it."""
    stays = is_known(before, after) and whole(before) == whole(after)
    return before if stays else jnp.asarray(before, jnp.int32)


def _length(attrs: Any, held: List) -> Any:
    return held.length


def _element_shape(attrs: Any, held: List) -> Any:
    if held.buffer is None:
        raise Unsupported("the shape of an element of its list is not known")
    if isinstance(held.buffer, Fixed):
        return np.array(held.buffer.value.shape, attrs["shape_type"])
    return np.array(held.buffer.shape[1:], attrs["shape_type"])


def zeros_like(held: List) -> List:
    """A list of as many zeros."""
    if isinstance(held.buffer, Fixed):
        return dataclasses.replace(held, buffer=Fixed(np.zeros_like(held.buffer.value)))
    return dataclasses.replace(held, buffer=jax.tree.map(jnp.zeros_like, held.buffer))


def add(*values: List) -> List:
    """The sums of the elements of lists; nothing was written to those without a buffer."""
    if any(isinstance(value.buffer, Fixed) for value in values):
        raise Unsupported("it adds lists of known values")
    held = [value for value in values if value.buffer is not None]
    if not held:
        return values[0]
    total = held[0].buffer
    for value in held[1:]:
        total = jax.tree.map(jnp.add, total, value.buffer)
    return dataclasses.replace(held[0], buffer=total)


def _of_one(attrs: Any, values: Any, result: Any) -> Any:
    held, index = values[:2]
    return index, None if attrs.get("resize_if_index_out_of_bounds") else held.length


def _of_new(attrs: Any, values: Any, result: Any) -> Any:
    return values[1], np.int32(result.room)


def _of_cut(attrs: Any, values: Any, result: Any) -> Any:
    held, count = values[:2]
    return (np.int32(0), None) if is_known(count) else (count, held.length + np.int32(1))


_PLACES = {
    **dict.fromkeys(("TensorListSetItem", "TensorListGetItem", "TensorListGather"), _of_one),
    **dict.fromkeys(("TensorListScatter", "TensorListScatterV2"), _of_new),
    "TensorListResize": _of_cut,
    "TensorListScatterIntoExistingList": lambda attrs, values, result: (values[2], values[0].length),
}
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
    "TensorListScatterIntoExistingList": Rule(scatter_into),
    "TensorListResize": Rule(resize),
    "TensorListConcat": Rule(concat),
    "TensorListConcatV2": Rule(concat),
    "TensorListSplit": Rule(split, known=(2,)),
    "TensorListLength": Rule(_length),
    "TensorListElementShape": Rule(_element_shape),
}
RULES = {op: row._replace(lists=True, places=_PLACES.get(op)) for op, row in _RULES.items()}
