"""Shapes of data-sized rows, and what ops on shapes make of them, size by size.

A number of rows is a Size: a traced number and the most that it may be. A tensor of sizes with one is Dims, so that
what is made by such a shape knows how much room it needs. What moves sizes is done to their places:

    tf.stack([2, tf.shape(rows)[0]])    the sizes 2 and n have places 1 and 2; Pack gives [1, 2], which are 2 and n
"""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Iterable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Dims, Either, Grid, Rows, Size, Turned, is_known, is_tensor, whole

Handler = Callable[..., Any]


def of(sizes: Iterable[Any], dtype: Any, shape: Sequence[int] | None = None) -> Any:
    """A tensor of sizes, which is known if all of them are.

    Args:
        sizes: int or Size, in row-major order.
        dtype: of the tensor.
        shape: likewise, None for a vector.
    """
    sizes = tuple(sizes)
    shape = (len(sizes),) if shape is None else tuple(shape)
    if any(isinstance(size, Size) for size in sizes):
        return Dims(sizes, dtype, shape)
    return np.array(sizes, dtype).reshape(shape)


def sizes_of(value: Any) -> tuple[Any, ...]:
    """The parts of a shape or size: ints and Sizes."""
    return value.sizes if isinstance(value, Dims) else tuple(np.ravel(value).tolist())


def as_tensor(value: Any) -> Any:
    """Sizes as a traced tensor; another value as it is."""
    if not isinstance(value, Dims):
        return value
    parts = [part.count.astype(value.dtype) if isinstance(part, Size) else np.array(part, value.dtype)
             for part in value.sizes]  # fmt: skip
    return jnp.stack(parts).reshape(value.shape) if value.shape else jnp.asarray(parts[0])


def counts_of(dims: Dims) -> tuple[Any, ...]:
    """The numbers among sizes that data decide."""
    return tuple(size.count for size in dims.sizes if isinstance(size, Size))


def with_counts(dims: Dims, counts: Iterable[Any]) -> Dims:
    """Sizes with other numbers that data decide, of which nothing is known but the most that they may be."""
    new = iter(counts)
    sizes = (size._replace(count=next(new), rest=None) if isinstance(size, Size) else size for size in dims.sizes)
    return dims._replace(sizes=tuple(sizes))


# -- moved -------------------------------------------------------------------------------------------------------------


# ops that move sizes -> function of the number of their inputs: the numbers of those that are moved
MOVES: dict[str, Callable[[int], range]] = {
    **dict.fromkeys(
        ("ExpandDims", "Gather", "GatherV2", "Reshape", "Slice", "Squeeze", "StridedSlice", "Unpack"),
        lambda count: range(1),
    ),
    "Pack": range, "ConcatV2": lambda count: range(count - 1), "DynamicStitch": lambda count: range(count // 2, count),
}  # fmt: skip


def may_move(op: str, values: Sequence[Any]) -> bool:
    """Whether an op does nothing with its inputs but to move sizes.

    Raises:
        Unsupported: it makes a shape of them and of tensors.
    """
    if op not in MOVES:
        return False
    numbers = MOVES[op](len(values))
    taken = [values[number] for number in numbers]
    if not any(isinstance(value, Dims) for value in taken):
        return False
    if not is_known(*(value for number, value in enumerate(values) if number not in numbers)):
        return False
    others = [value for value in taken if not isinstance(value, Dims) and not is_known(value)]
    if others and all(is_tensor(value) and value.ndim + (op == "Pack") <= 1 for value in others):
        raise Unsupported("a shape has parts that are not known")
    return not others


def moved(row: Rule, op: str, attrs: Attrs, values: Sequence[Any]) -> Any:
    """What such an op gives; its rule is applied to the places of the sizes. Place 0 is that of a zero."""
    given, sizes = list(values), [0]
    for number in MOVES[op](len(values)):
        given[number] = len(sizes) + _places(values[number])
        sizes += sizes_of(values[number])
    dtype = next(value.dtype for value in values if isinstance(value, Dims))
    result = row.apply(attrs, *given)
    parts = [of([sizes[place] for place in np.ravel(part).tolist()], dtype, np.shape(part))
             for part in (result if type(result) is tuple else (result,))]  # fmt: skip
    return tuple(parts) if type(result) is tuple else parts[0]


def _places(value: Any) -> Any:
    return np.arange(math.prod(value.shape)).reshape(value.shape)


# -- made and computed -------------------------------------------------------------------------------------------------


def shape_of(attrs: Attrs, *values: Any) -> Any:
    """Shape and ShapeN."""
    shapes = [_dims_of(value, attrs["out_type"]) for value in values]
    return shapes[0] if len(shapes) == 1 else tuple(shapes)


def _dims_of(value: Any, dtype: Any) -> Any:
    counts = value.counts if isinstance(value, (Rows, Turned, Grid)) else {}
    shape = value.array.shape if counts else value.shape
    return of([Size(counts[at], size) if at in counts else size for at, size in enumerate(shape)], dtype)


def size_of(attrs: Attrs, x: Any) -> Any:
    """Size."""
    return of([_product(_dims_of(x, attrs["out_type"]).sizes)], attrs["out_type"], ())


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


def _offsets(attrs: Attrs, axis: Any, *shapes: Any) -> Any:
    """ConcatOffset: where each part begins."""
    at, start, result = whole(axis), 0, []
    dtype = next(value.dtype for value in shapes if isinstance(value, Dims))
    for shape in shapes:
        sizes = sizes_of(shape)
        result.append(of([start if place == at else 0 for place in range(len(sizes))], dtype))
        start = of_two(operator.add, None, start, sizes[at])
    return result[0] if len(result) == 1 else tuple(result)


def _product_of(attrs: Attrs, dims: Dims, axes: Any) -> Any:
    if not np.size(axes):
        return dims
    if len(dims.shape) > 1:
        raise Unsupported("it multiplies sizes that are no shape")
    return of([_product(dims.sizes)], dims.dtype, (1,) if attrs["keep_dims"] else ())


def _cast(attrs: Attrs, dims: Dims) -> Any:
    if not np.issubdtype(attrs["DstT"], np.integer):
        return as_tensor(dims).astype(attrs["DstT"])
    return dims._replace(dtype=attrs["DstT"])


def _arithmetic(function: Callable[[Any, Any], Any], of_itself: int | None = None) -> Handler:
    """Of two tensors of sizes, size by size. With a tensor of which nothing is known, a tensor.

    Args:
        function: of ints and traced ones, monotonic in each.
        of_itself: what it gives of a number and the same number, None if that depends on it.
    """

    def computed(attrs: Attrs, x: Any, y: Any) -> Any:
        if not all(isinstance(value, Dims) or is_known(value) for value in (x, y)):
            return function(as_tensor(x), as_tensor(y))
        one, other = sizes_of(x), sizes_of(y)
        places = np.broadcast_arrays(_places(x), _places(y))
        pairs = zip(*(part.ravel().tolist() for part in places))
        dtype = x.dtype if isinstance(x, Dims) else y.dtype
        return of([of_two(function, of_itself, one[a], other[b]) for a, b in pairs], dtype, places[0].shape)

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
    """BroadcastGradientArgs: rows go with as many rows, and one row with each of them.

    Of two numbers of rows data may say that one is 1, along which the gradient is summed then.
    """
    dtype = next(value.dtype for value in (x, y) if isinstance(value, Dims))
    shapes = [sizes_of(value) for value in (x, y)]
    rank = max(map(len, shapes))
    axes: tuple[list[int], list[int]] = ([], [])
    for at, pair in enumerate(zip(*((1,) * (rank - len(dims)) + dims for dims in shapes))):
        one, other = pair
        for own, size in zip(axes, pair):
            if isinstance(size, int) and size == 1 and not _is_same(one, other):
                own.append(at)
        is_open = not _is_same(one, other) and not any(isinstance(size, int) and size == 1 for size in pair)
        if is_open and (at or not are_of_rows(*shapes)):
            raise Unsupported("two numbers that depend on data may differ, and one of them may be 1")
    known = [np.array(own, dtype) for own in axes]
    if not are_of_rows(*shapes) or _is_same(shapes[0][0], shapes[1][0]):
        return tuple(known)
    firsts = [dims[0] for dims in shapes]
    return tuple(_of_single(own, *pair) for own, pair in zip(known, (firsts, firsts[::-1])))


def are_of_rows(*shapes: Sequence[Any]) -> bool:
    """Whether shapes have one rank, and data says their first size and no other one."""
    are_open = all(dims and isinstance(dims[0], Size) for dims in shapes) and len({*map(len, shapes)}) == 1
    return are_open and not any(isinstance(size, Size) for dims in shapes for size in dims[1:])


def _of_single(axes: Any, own: Any, other: Any) -> Either:
    """Axes, with the first one where there is a single row of its own, and not of the other."""
    is_single = (own.count == np.int32(1)) & (other.count != np.int32(1))
    return Either(is_single, (axes, np.concatenate([np.zeros(1, axes.dtype), axes])))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are equal whatever the data are."""
    if isinstance(one, Size) and isinstance(other, Size):
        return one.count is other.count
    return not isinstance(one, Size) and not isinstance(other, Size) and bool(one == other)


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
    "ConcatOffset": _offsets, "Prod": _product_of, "Cast": _cast, "BroadcastGradientArgs": _gradient_axes,
    **dict.fromkeys(("Add", "AddV2"), _arithmetic(operator.add)), "Sub": _arithmetic(operator.sub, 0),
    "Mul": _arithmetic(operator.mul), "FloorDiv": _arithmetic(_quotient, 1), "Maximum": _maximum,
}  # fmt: skip
