"""Parts of sparse tensors, sparse tensors behind one another, and the largest element of each row.

A part has as many elements as data says. Elements that are not there come last, and stand outside of the shape.
"""

from __future__ import annotations

from typing import Any, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import array_of, present
from npu_shim.step.refusals import Unknown
from npu_shim.step.rules import reductions, sparse
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, ints, is_known, traced, whole


def _parts(value: Any) -> tuple[Any, Any]:
    """(An array, which of its first dimension's elements there are)."""
    return traced(array_of(value)), present(value)


def _taken(indices: Any, values: Any, is_taken: Any, order: Any) -> tuple[Any, Any]:
    """Elements by their numbers in an order, of which those that are taken come first."""
    count = jnp.sum(is_taken, dtype=np.int32)
    return Rows(indices[order], count), Rows(values[order], count)


def _box(indices: Any, values: Any, shape: Sequence[int], start: Sequence[int], size: Sequence[int]) -> Any:
    """(Indices, values, shape) of what stands in a box."""
    (places, is_there), (amounts, _) = _parts(indices), _parts(values)
    first = np.array(start, np.int64)
    dims = [max(0, min(length, whole_size - at)) for length, whole_size, at in zip(size, shape, start)]
    inside = is_there & jnp.all((places >= first) & (places < first + np.array(dims, np.int64)), 1)
    order = jnp.argsort(~inside, stable=True)
    return (*_taken(places - first, amounts, inside, order), np.array(dims, np.int64))


def cut(attrs: Attrs, indices: Any, values: Any, shape: Any, start: Any, size: Any) -> Any:
    """SparseSlice."""
    return _box(indices, values, ints(shape), ints(start), ints(size))


def cut_gradient(attrs: Attrs, g: Any, indices: Any, start: Any, taken: Any) -> Any:
    """SparseSliceGrad: of each element that was taken; zero for others."""
    moved = array_of(taken) + np.array(ints(start), np.int64)
    return sparse.taken(g, Rows(moved, taken.count) if isinstance(taken, Rows) else moved, [indices])[0]


def split(attrs: Attrs, axis: Any, indices: Any, values: Any, shape: Any) -> Any:
    """SparseSplit: indices, values and shapes of parts of which the first ones are longer by one if need be."""
    sizes, count = ints(shape), attrs["num_split"]
    at = whole(axis) % len(sizes)
    short, longer = divmod(sizes[at], count)
    lengths = [short + (number < longer) for number in range(count)]
    parts = []
    for number, length in enumerate(lengths):
        start, size = [0] * len(sizes), list(sizes)
        start[at], size[at] = sum(lengths[:number]), length
        parts.append(_box(indices, values, sizes, start, size))
    return tuple(one for column in zip(*parts) for one in column)


def concat(attrs: Attrs, *given: Any) -> Any:
    """SparseConcat: in order of their indices."""
    number = len(given) // 3
    for at, shape in enumerate(given[2 * number :]):
        if not is_known(shape):
            raise Unknown(2 * number + at)
    shapes = [list(ints(shape)) for shape in given[2 * number :]]
    at = attrs["concat_dim"] % len(shapes[0])
    places, there, amounts, end = [], [], [], 0
    for indices, values, shape in zip(given[:number], given[number : 2 * number], shapes):
        (array, is_there), (amount, _) = _parts(indices), _parts(values)
        places.append(array + np.array([end if axis == at else 0 for axis in range(len(shape))], np.int64))
        there.append(is_there)
        amounts.append(amount)
        end += shape[at]
    array, is_there, amount = map(jnp.concatenate, (places, there, amounts))
    order = jnp.lexsort((*(array[:, axis] for axis in range(array.shape[1] - 1, -1, -1)), ~is_there))
    result = np.array([end if axis == at else size for axis, size in enumerate(shapes[0])], np.int64)
    if any(isinstance(value, Rows) for value in given):
        return (*_taken(array, amount, is_there, order), result)
    return array[order], amount[order], result


def reduce_max(attrs: Attrs, indices: Any, values: Any, shape: Any, axes: Any) -> Any:
    """SparseReduceMax: zero where there is no element."""
    sizes, ((places, is_there), (amounts, _)) = ints(shape), (_parts(indices), _parts(values))
    at = tuple(jnp.where(is_there, places[:, axis], np.int64(size)) for axis, size in enumerate(sizes))
    least = reductions.least(amounts.dtype)
    full = jnp.full(sizes, least, amounts.dtype).at[at].max(amounts, mode="drop")
    taken = jnp.zeros(sizes, bool).at[at].set(True, mode="drop")
    along = tuple(axis % len(sizes) for axis in ints(axes)) if np.size(axes) else tuple(range(len(sizes)))
    largest = jnp.max(full, along, keepdims=attrs["keep_dims"], initial=least)
    is_any = jnp.any(taken, along, keepdims=attrs["keep_dims"])
    return jnp.where(is_any, largest, np.zeros((), amounts.dtype))


RULES = {
    "SparseConcat": Rule(concat, rows=concat),
    "SparseSlice": Rule(cut, known=(2, 3, 4), rows=cut),
    "SparseSliceGrad": Rule(cut_gradient, known=(2,), rows=cut_gradient),
    "SparseSplit": Rule(split, known=(0, 3), rows=split),
    "SparseReduceMax": Rule(reduce_max, known=(2, 3), rows=reduce_max),
}
