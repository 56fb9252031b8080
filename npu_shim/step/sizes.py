"""Shapes of data-sized rows, and what ops on shapes make of them, part by part.

A number of rows is a Size: a traced number and the most that it may be. A shape with one is Dims, so that what is made
by such a shape knows how much room it needs.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import indexing
from npu_shim.step.rules.table import Attrs
from npu_shim.step.values import Dims, Grid, Rows, Size, Turned, ints, is_known, whole

Handler = Callable[..., Any]
FIRST = np.int32(0)  # the axis of an op that has no input for it


def shape_of(attrs: Attrs, *values: Any) -> Any:
    """Shape and ShapeN."""
    shapes = [_dims_of(value, attrs["out_type"]) for value in values]
    return shapes[0] if len(shapes) == 1 else tuple(shapes)


def _dims_of(value: Any, dtype: Any) -> Any:
    if isinstance(value, Turned):
        open_one = Size(value.count, value.array.shape[value.axis])
        return Dims(tuple(open_one if at == value.axis else n for at, n in enumerate(value.array.shape)), dtype)
    if isinstance(value, Grid):
        open_ones = {0: value.count, value.axis: value.columns}
        shape = enumerate(value.array.shape)
        return Dims(tuple(Size(open_ones[at], size) if at in open_ones else size for at, size in shape), dtype)
    if not isinstance(value, Rows):
        return np.array(value.shape, dtype)
    return Dims((Size(value.count, value.array.shape[0]), *value.array.shape[1:]), dtype)


def size_of(attrs: Attrs, x: Rows) -> Any:
    """Size."""
    return Dims((_product(_dims_of(x, attrs["out_type"]).sizes),), attrs["out_type"], True)


def _product(sizes: Sequence[Any]) -> Any:
    number, open_one = 1, None
    for size in sizes:
        if not isinstance(size, Size):
            number *= size
        elif open_one is None:
            open_one = size
        else:
            raise Unsupported("two dimensions depend on data")
    if open_one is None or number == 1:
        return number if open_one is None else open_one
    return Size(open_one.count * np.int32(number), open_one.most * number)


def sizes_of(value: Any) -> tuple[Any, ...]:
    """The parts of a shape or size: ints and Sizes."""
    return value.sizes if isinstance(value, Dims) else ints(value) if np.size(value) else ()


def _again(sizes: Sequence[Any], dtype: Any, is_scalar: bool = False) -> Any:
    """A shape: known if all its parts are."""
    if any(isinstance(size, Size) for size in sizes):
        return Dims(tuple(sizes), dtype, is_scalar)
    return np.array(sizes[0] if is_scalar else sizes, dtype)


def _picked(attrs: Attrs, dims: Any, begin: Any, end: Any, strides: Any) -> Any:
    index = indexing.index_of(attrs, begin, end, strides)
    numbers = np.arange(len(dims.sizes))[index]
    if np.ndim(numbers) == 0:
        return _again([dims.sizes[int(numbers)]], dims.dtype, True)
    return _again([dims.sizes[at] for at in numbers.tolist()], dims.dtype)


def _sliced(attrs: Attrs, dims: Any, begin: Any, size: Any) -> Any:
    (start,), (length,) = ints(begin), ints(size)
    return _again(dims.sizes[start : None if length < 0 else start + length], dims.dtype)


def _gathered(attrs: Attrs, dims: Any, indices: Any, axis: Any = FIRST) -> Any:
    if not isinstance(dims, Dims) or not is_known(indices):
        is_open = isinstance(dims, Rows) or isinstance(indices, Rows)
        rule = indexing.gather_rows if is_open else indexing.gather
        return rule(attrs, _tensor(dims), _tensor(indices), axis)
    numbers = np.arange(len(dims.sizes))[np.asarray(indices)]
    if np.ndim(numbers) == 0:
        return _again([dims.sizes[int(numbers)]], dims.dtype, True)
    return _again([dims.sizes[at] for at in numbers.tolist()], dims.dtype)


def _packed(attrs: Attrs, *values: Any) -> Any:
    if not all(value.is_scalar if isinstance(value, Dims) else np.ndim(value) == 0 for value in values):
        return jnp.stack(list(map(_tensor, values)), attrs["axis"])
    return _in_a_row(values)


def _tensor(value: Any) -> Any:
    return as_tensor(value) if isinstance(value, Dims) else value


def _in_a_row(values: Sequence[Any]) -> Any:
    dtype = next(value.dtype for value in values if isinstance(value, Dims))
    if not all(is_known(value) or isinstance(value, Dims) for value in values):
        raise Unsupported("a shape has parts that are not known")
    return _again([size for value in values for size in sizes_of(value)], dtype)


def _concatenated(attrs: Attrs, *values: Any) -> Any:
    *parts, axis = values
    if any(np.ndim(value) > 1 for value in parts if not isinstance(value, Dims)):
        return jnp.concatenate(list(map(_tensor, parts)), whole(axis))
    return _in_a_row(parts)


def _offsets(attrs: Attrs, axis: Any, *shapes: Any) -> Any:
    """ConcatOffset: where each part begins."""
    at, start, result = whole(axis), 0, []
    dtype = next(value.dtype for value in shapes if isinstance(value, Dims))
    for shape in shapes:
        sizes = sizes_of(shape)
        result.append(_again([start if place == at else 0 for place in range(len(sizes))], dtype))
        start = of_two(operator.add, None, start, sizes[at])
    return result[0] if len(result) == 1 else tuple(result)


def _product_of(attrs: Attrs, dims: Any, axes: Any) -> Any:
    if not np.size(axes):
        return dims
    return _again([_product(dims.sizes)], dims.dtype, not attrs["keep_dims"])


def _cast(attrs: Attrs, dims: Any) -> Any:
    if not np.issubdtype(attrs["DstT"], np.integer):
        return as_tensor(dims).astype(attrs["DstT"])
    return Dims(dims.sizes, attrs["DstT"], dims.is_scalar)


def _arithmetic(function: Callable[[Any, Any], Any], of_itself: int | None = None) -> Handler:
    """Of two shapes, part by part; a scalar goes with each part. With a tensor, of which nothing is known, a tensor.

    Args:
        function: of ints and traced ones, monotonic in each.
        of_itself: what it gives of a number and the same number, None if that depends on it.
    """

    def computed(attrs: Attrs, x: Any, y: Any) -> Any:
        if not all(isinstance(value, Dims) or is_known(value) for value in (x, y)):
            return function(_tensor(x), _tensor(y))
        one, other = sizes_of(x), sizes_of(y)
        length = max(len(one), len(other))
        pairs = zip(one * (length if len(one) == 1 else 1), other * (length if len(other) == 1 else 1))
        first = x if isinstance(x, Dims) else y
        is_scalar = all(v.is_scalar if isinstance(v, Dims) else np.ndim(v) == 0 for v in (x, y))
        return _again([of_two(function, of_itself, a, b) for a, b in pairs], first.dtype, is_scalar)

    return computed


def of_two(function: Callable[[Any, Any], Any], of_itself: int | None, a: Any, b: Any) -> Any:
    """What a monotonic function gives of two sizes; `of_itself` of equal ones, unless that is None."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return int(function(a, b))
    if of_itself is not None and _is_same(a, b):
        return of_itself
    if isinstance(b, int) and b == NEUTRAL.get(function):
        return a  # the same number: of another one nothing shows that it is equal
    (one, *first), (other, *second) = bounds_of(a), bounds_of(b)
    corners = [int(function(x, y)) for x in first for y in second]
    rest = _rest(a, b) if function is operator.sub else None
    return Size(function(one, other), max(corners), min(corners), rest, _filled(function, a, b))


def _filled(function: Callable[[Any, Any], Any], a: Any, b: Any) -> int | None:
    """`Size.fills` of a difference; of the larger of it and another number, and of a sum with it."""
    if function is operator.sub:
        return a if isinstance(a, int) else None
    numbers = [size.fills for size in (a, b) if isinstance(size, Size) and size.fills is not None]
    return numbers[0] if len(numbers) == 1 and function in (operator.add, _larger) else None


def _rest(a: Any, b: Any) -> tuple[Any, Any, int] | None:
    """What a difference is the rest of."""
    if isinstance(b, Size):
        return a, b.count, 0
    return (*a.rest[:2], a.rest[2] + b) if a.rest is not None else None


def _quotient(a: Any, b: Any) -> Any:
    """The quotient of sizes; nothing is divided by zero, the least that a size may be."""
    return a // max(b, 1) if isinstance(b, int) else a // b


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.maximum(a, b)


def _maximum(attrs: Attrs, x: Any, y: Any) -> Any:
    """Maximum: a number that is never below another one stays what it is."""
    for one, other in ((x, y), (y, x)):
        is_pair = isinstance(one, Dims) and is_known(other) and np.ndim(other) == 0
        if is_pair and all(bounds_of(size)[1] >= whole(other) for size in one.sizes):
            return one
    return _arithmetic(_larger)(attrs, x, y)


def _gradient_axes(attrs: Attrs, x: Any, y: Any) -> Any:
    """BroadcastGradientArgs: rows go with as many rows, and one row with each of them."""
    dtype = next(value.dtype for value in (x, y) if isinstance(value, Dims))
    shapes = [sizes_of(value) for value in (x, y)]
    rank = max(map(len, shapes))
    axes: tuple[list[int], list[int]] = ([], [])
    for at, pair in enumerate(zip(*((1,) * (rank - len(dims)) + dims for dims in shapes))):
        one, other = pair
        for own, size in zip(axes, pair):
            if isinstance(size, int) and size == 1 and not _is_same(one, other):
                own.append(at)
        if not _is_same(one, other) and not any(isinstance(size, int) and size == 1 for size in pair):
            raise Unsupported("two numbers that depend on data may differ, and one of them may be 1")
    return tuple(np.array(own, dtype) for own in axes)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are equal whatever the data are."""
    if isinstance(one, Size) and isinstance(other, Size):
        return one.count is other.count
    return not isinstance(one, Size) and not isinstance(other, Size) and bool(one == other)


def as_tensor(dims: Any) -> Any:
    """A shape as a traced tensor."""
    parts = [part.count.astype(dims.dtype) if isinstance(part, Size) else np.array(part, dims.dtype)
             for part in dims.sizes]  # fmt: skip
    return jnp.asarray(parts[0]) if dims.is_scalar else jnp.stack(parts)


def _stitched(attrs: Attrs, *values: Any) -> Any:
    half = len(values) // 2
    dtype = next(value.dtype for value in values[half:] if isinstance(value, Dims))
    if not is_known(*values[:half]):
        raise Unsupported("its indices had to be known when the step is traced")
    placed: dict[int, Any] = {}
    for places, part in zip(values[:half], values[half:]):
        placed.update(zip(ints(places) if places.size else (), sizes_of(part)))
    return _again([placed[at] for at in range(len(placed))], dtype)


def _expanded(attrs: Attrs, dims: Any, axis: Any) -> Any:
    if not dims.is_scalar:
        raise Unsupported("a shape of a data-sized tensor gets another dimension")
    return Dims(dims.sizes, dims.dtype)


def bounds(number: Any) -> tuple[Any, int, int]:
    """(A limit, traced; the least and the most that it may be)."""
    (size,) = sizes_of(number)
    return bounds_of(size)


def bounds_of(size: Any) -> tuple[Any, int, int]:
    """`bounds` of an int or a Size."""
    if isinstance(size, Size):
        return size.count, size.least, size.most
    return jnp.int32(size), size, size


NEUTRAL: dict[Callable[[Any, Any], Any], int] = {operator.add: 0, operator.sub: 0, operator.mul: 1, _quotient: 1}
HANDLERS: dict[str, Handler] = {
    "StridedSlice": _picked, "Slice": _sliced, "GatherV2": _gathered, "Gather": _gathered, "Pack": _packed,
    "ConcatV2": _concatenated, "ConcatOffset": _offsets, "Prod": _product_of, "Cast": _cast, "ExpandDims": _expanded,
    "DynamicStitch": _stitched, "BroadcastGradientArgs": _gradient_axes,
    **dict.fromkeys(("Add", "AddV2"), _arithmetic(operator.add)), "Sub": _arithmetic(operator.sub, 0),
    "Mul": _arithmetic(operator.mul), "FloorDiv": _arithmetic(_quotient, 1), "Maximum": _maximum,
}  # fmt: skip
