"""Data-sized rows: where they come from, and what is made of them and of their number.

A number of rows is a Size: a traced number and the most that it may be. A shape with one is Dims, which ops on shapes
hand on part by part, so that what is made by such a shape knows how much room it needs.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import indexing, reductions
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Dims, Rows, Size, ints, is_known, traced, whole

Handler = Callable[..., Any]

# -- where they come from ----------------------------------------------------------------------------------------------


def unique(attrs: Attrs, x: Any) -> tuple[Any, Any, Any]:
    """(Values in the order in which they first come, each element's place among them, counts)."""
    if is_known(x):
        values, first, inverse, counts = np.unique(x, True, True, True)
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        dtype = attrs["out_idx"]
        return values[order], rank[inverse].reshape(-1).astype(dtype), counts[order].astype(dtype)
    return _unique(x, attrs["out_idx"])


def _unique(x: Any, dtype: Any) -> tuple[Any, Any, Any]:
    size = x.shape[0]
    order = jnp.argsort(x, stable=True).astype(np.int32)
    ordered = x[order]
    starts = jnp.concatenate([jnp.ones(min(size, 1), bool), ordered[1:] != ordered[:-1]])
    group = jnp.cumsum(starts.astype(np.int32), dtype=np.int32) - np.int32(1)
    first = jnp.full(size, size, np.int32).at[group].min(order)  # of each group, `size` behind the last
    count = jnp.sum(starts, dtype=np.int32)
    by_place = jnp.argsort(first, stable=True).astype(np.int32)
    rank = jnp.zeros(size, np.int32).at[by_place].set(jnp.arange(size, dtype=np.int32))
    places = jnp.zeros(size, np.int32).at[order].set(rank[group])
    values = jnp.take(x, first[by_place], mode="clip")
    counts = jnp.zeros(size, np.int32).at[places].add(np.int32(1))
    return Rows(values, count), places.astype(dtype), Rows(counts.astype(dtype), count)


def _unique_rule(outputs: int) -> Rule:
    return Rule(lambda attrs, x, *axis: unique(attrs, x)[:outputs])


def where(attrs: Attrs, condition: Any) -> Any:
    """Where: the indices of what is true (or not zero), int64 [count, rank]."""
    if is_known(condition):
        return np.argwhere(condition).astype(np.int64)
    flat = jnp.reshape(condition != np.zeros((), condition.dtype), (-1,))
    at = jnp.nonzero(flat, size=flat.shape[0], fill_value=0)[0]
    indices = jnp.stack(jnp.unravel_index(at, condition.shape), -1) if np.ndim(condition) else at[:, None][:, :0]
    return Rows(indices.astype(np.int64), jnp.sum(flat, dtype=np.int32))


def dynamic_partition(attrs: Attrs, x: Any, partitions: Any) -> Any:
    """DynamicPartition: the rows of each part, in their order."""
    x, flat = traced(x), jnp.reshape(partitions, (-1,))
    rows = x.reshape((-1, *x.shape[np.ndim(partitions) :]))
    if is_known(partitions):
        parts = [rows[np.flatnonzero(np.reshape(partitions, -1) == part)] for part in range(attrs["num_partitions"])]
    else:
        parts = [_chosen(rows, flat == np.int32(part)) for part in range(attrs["num_partitions"])]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _chosen(rows: Any, mask: Any) -> Rows:
    order = jnp.argsort(jnp.logical_not(mask), stable=True)
    return Rows(rows[order], jnp.sum(mask, dtype=np.int32))


def dynamic_stitch(attrs: Attrs, *values: Any) -> Any:
    """DynamicStitch and ParallelDynamicStitch: later rows win, as do later parts."""
    half = len(values) // 2
    indices, data = values[:half], values[half:]
    if not is_known(*indices):
        raise Unsupported("its indices had to be known when the step is traced")
    size = max((int(places.max()) + 1 for places in indices if places.size), default=0)
    if all(map(is_known, data)):
        rest = data[0].shape[indices[0].ndim :]
        stitched = np.zeros((size, *rest), data[0].dtype)
        for places, part in zip(indices, data):
            stitched[places] = part
        return stitched
    rest = data[0].shape[indices[0].ndim :]
    result = jnp.zeros((size, *rest), data[0].dtype)
    for places, part in zip(indices, data):
        result = result.at[places.reshape(-1)].set(jnp.reshape(part, (-1, *rest)))
    return result


def stitch_of_parts(attrs: Attrs, *values: Any) -> Any:
    """DynamicStitch of parts of which there are as many rows as data says: as long as all parts together."""
    half = len(values) // 2
    indices, data = values[:half], values[half:]
    if not any(isinstance(places, Rows) for places in indices):
        raise Unsupported("it stitches rows whose number depends on data by indices of another number")
    size = max(_array(places).shape[0] for places in indices)
    rest = _array(data[0]).shape[1:]
    result = jnp.zeros((size, *rest), _array(data[0]).dtype)
    for places, part in zip(indices, data):
        at = _live_places(places, size)
        result = result.at[at].set(_array(part), mode="drop")
    return result


def _array(value: Any) -> Any:
    return value.array if isinstance(value, Rows) else value


def _live_places(places: Any, size: int) -> Any:
    if not isinstance(places, Rows):
        return places
    return jnp.where(_mask(places), places.array, np.array(size, places.array.dtype))


def _mask(rows: Rows) -> Any:
    return jnp.arange(rows.array.shape[0], dtype=np.int32) < rows.count


# -- shapes ------------------------------------------------------------------------------------------------------------


def shape_of(attrs: Attrs, *values: Any) -> Any:
    """Shape and ShapeN."""
    shapes = [_dims_of(value, attrs["out_type"]) for value in values]
    return shapes[0] if len(shapes) == 1 else tuple(shapes)


def _dims_of(value: Any, dtype: Any) -> Any:
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
    return number if open_one is None else Size(open_one.count * np.int32(number), open_one.most * number)


def _sizes(value: Any) -> tuple[Any, ...]:
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


def _gathered(attrs: Attrs, dims: Any, indices: Any, *axis: Any) -> Any:
    numbers = np.arange(len(dims.sizes))[np.asarray(indices)]
    if np.ndim(numbers) == 0:
        return _again([dims.sizes[int(numbers)]], dims.dtype, True)
    return _again([dims.sizes[at] for at in numbers.tolist()], dims.dtype)


def _packed(attrs: Attrs, *values: Any) -> Any:
    dtype = next(value.dtype for value in values if isinstance(value, Dims))
    if not all(is_known(value) or isinstance(value, Dims) for value in values):
        raise Unsupported("a shape has parts that are not known")
    return _again([size for value in values for size in _sizes(value)], dtype)


def _concatenated(attrs: Attrs, *values: Any) -> Any:
    return _packed(attrs, *values[:-1])


def _product_of(attrs: Attrs, dims: Any, axes: Any) -> Any:
    if not np.size(axes):
        return dims
    return _again([_product(dims.sizes)], dims.dtype, not attrs["keep_dims"])


def _cast(attrs: Attrs, dims: Any) -> Any:
    if not np.issubdtype(attrs["DstT"], np.integer):
        return as_tensor(dims).astype(attrs["DstT"])
    return Dims(dims.sizes, attrs["DstT"], dims.is_scalar)


def _arithmetic(whole_number: Callable[[int, int], int], grows: bool) -> Handler:
    """Of two shapes, part by part; a scalar goes with each part."""

    def computed(attrs: Attrs, x: Any, y: Any) -> Any:
        one, other = _sizes(x), _sizes(y)
        length = max(len(one), len(other))
        pairs = zip(one * (length if len(one) == 1 else 1), other * (length if len(other) == 1 else 1))
        first = x if isinstance(x, Dims) else y
        is_scalar = all(v.is_scalar if isinstance(v, Dims) else np.ndim(v) == 0 for v in (x, y))
        return _again([_of_two(whole_number, grows, a, b) for a, b in pairs], first.dtype, is_scalar)

    return computed


def _of_two(whole_number: Callable[[Any, Any], Any], grows: bool, a: Any, b: Any) -> Any:
    if not isinstance(a, Size) and not isinstance(b, Size):
        return int(whole_number(a, b))
    if a is b and not grows:
        return int(whole_number(1, 1))
    counts = [part.count if isinstance(part, Size) else np.int32(part) for part in (a, b)]
    most = [part.most if isinstance(part, Size) else part for part in (a, b)]
    bound = most[0] if not grows else int(whole_number(most[0], most[1]))
    return Size(whole_number(jnp.asarray(counts[0]), jnp.asarray(counts[1])), max(bound, most[0]))


def _floor_divided(a: Any, b: Any) -> Any:
    return a // b


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
        placed.update(zip(ints(places) if places.size else (), _sizes(part)))
    return _again([placed[at] for at in range(len(placed))], dtype)


def _expanded(attrs: Attrs, dims: Any, axis: Any) -> Any:
    if not dims.is_scalar:
        raise Unsupported("a shape of a data-sized tensor gets another dimension")
    return Dims(dims.sizes, dims.dtype)


# -- what is made by them ----------------------------------------------------------------------------------------------


def reshape(attrs: Attrs, x: Any, shape: Any) -> Any:
    """Reshape of rows: the first dimension stays one that depends on data; and of a shape."""
    if isinstance(x, Dims):
        return Dims(x.sizes, x.dtype, not np.size(shape))
    sizes = list(_sizes(shape))
    array = x.array if isinstance(x, Rows) else traced(x)
    rest = sizes[1:]
    if not sizes or any(isinstance(size, Size) or size < 0 for size in rest):
        raise Unsupported("it gives rows whose number depends on data another first dimension")
    each_row = int(np.prod(rest, dtype=np.int64))
    result = array.reshape((array.size // each_row if each_row else 0, *rest))
    if not isinstance(x, Rows):
        return Rows(result, sizes[0].count)
    old = int(np.prod(array.shape[1:], dtype=np.int64))
    if old == each_row:
        return Rows(result, x.count)
    if old % each_row:
        raise Unsupported("it merges rows whose number depends on data")
    return Rows(result, x.count * np.int32(old // each_row))


def fill(attrs: Attrs, shape: Any, value: Any) -> Any:
    """Fill and BroadcastTo by a shape whose first dimension depends on data."""
    sizes = shape.sizes
    if not isinstance(sizes[0], Size) or any(isinstance(size, Size) for size in sizes[1:]):
        raise Unsupported("a dimension other than the first depends on data")
    return Rows(jnp.broadcast_to(jnp.asarray(value), (sizes[0].most, *sizes[1:])), sizes[0].count)


def tile(attrs: Attrs, x: Any, multiples: Any) -> Any:
    """Tile: one row as often as data says."""
    first, *rest = multiples.sizes
    if not isinstance(first, Size) or x.shape[0] != 1 or any(isinstance(size, Size) for size in rest):
        raise Unsupported("it repeats rows as often as data says")
    return Rows(jnp.tile(x, (first.most, *rest)), first.count)


def range_(attrs: Attrs, start: Any, limit: Any, delta: Any) -> Any:
    """Range from zero by one."""
    if not is_known(start, delta) or whole(start) != 0 or whole(delta) != 1:
        raise Unsupported("its limits had to be known when the step is traced")
    (size,) = limit.sizes
    return Rows(jnp.arange(size.most, dtype=limit.dtype), size.count)


def segment_sum(kind: str) -> Handler:
    """UnsortedSegmentSum and its kin: of rows, by their number, or both."""

    def reduced(attrs: Attrs, x: Any, ids: Any, count: Any) -> Any:
        size = count.sizes[0] if isinstance(count, Dims) else None
        room = size.most if isinstance(size, Size) else whole(count)
        places = _live_places(ids, room)
        if isinstance(x, Rows) and not isinstance(ids, Rows):
            places = jnp.where(_mask(x), places, np.array(room, places.dtype))
        result = indexing.RULES["UnsortedSegment" + kind].apply(attrs, _array(x), places, np.int32(room))
        return Rows(result, size.count) if isinstance(size, Size) else result

    return reduced


# -- reductions and joins ----------------------------------------------------------------------------------------------


def _over_rows(op: str, neutral: Callable[[Any], Any]) -> Handler:
    rule = reductions.RULES[op].apply

    def reduced(attrs: Attrs, x: Any, axes: Any) -> Any:
        along = reductions.axes_of(axes, x.array.ndim)
        if 0 not in along:
            return Rows(rule(attrs, x.array, axes), x.count)
        return rule(attrs, _with_neutral(x, neutral(x.array.dtype)), axes)

    return reduced


def _with_neutral(x: Rows, value: Any) -> Any:
    mask = _mask(x).reshape((-1,) + (1,) * (x.array.ndim - 1))
    return jnp.where(mask, x.array, np.array(value, x.array.dtype))


def mean(attrs: Attrs, x: Any, axes: Any) -> Any:
    """Mean: of the rows that there are."""
    along = reductions.axes_of(axes, x.array.ndim)
    if 0 not in along:
        return Rows(reductions.RULES["Mean"].apply(attrs, x.array, axes), x.count)
    total = reductions.RULES["Sum"].apply(attrs, _with_neutral(x, 0), axes)
    others = int(np.prod([x.array.shape[axis] for axis in along if axis], dtype=np.int64))
    return total / (x.count.astype(x.array.dtype) * np.array(others, x.array.dtype))


def concat(attrs: Attrs, *values: Any) -> Any:
    """ConcatV2 of rows: one behind the other."""
    *parts, axis = values
    first = next(part for part in parts if isinstance(part, Rows))
    at = whole(axis) % first.array.ndim
    if at:
        return Rows(jnp.concatenate([_array(part) for part in parts], at), first.count)
    room = sum(_array(part).shape[0] for part in parts)
    result = jnp.zeros((room, *first.array.shape[1:]), first.array.dtype)
    end = jnp.int32(0)
    for part in parts:
        array = traced(_array(part))
        places = jnp.arange(array.shape[0], dtype=np.int32) + end
        count = part.count if isinstance(part, Rows) else np.int32(array.shape[0])
        places = jnp.where(jnp.arange(array.shape[0], dtype=np.int32) < count, places, np.int32(room))
        result = result.at[places].set(array, mode="drop")
        end = end + count
    return Rows(result, end)


def squeeze(attrs: Attrs, x: Any) -> Any:
    """Squeeze of dimensions behind the first."""
    dims = [axis % x.array.ndim for axis in attrs["squeeze_dims"]]
    if not dims:
        dims = [axis for axis in range(1, x.array.ndim) if x.array.shape[axis] == 1]
    if 0 in dims:
        raise Unsupported("it takes the dimension of rows whose number depends on data away")
    return Rows(jnp.squeeze(x.array, tuple(dims)), x.count)


def expand_dims(attrs: Attrs, x: Any, axis: Any) -> Any:
    """ExpandDims behind the first dimension."""
    at = whole(axis) % (x.array.ndim + 1)
    if at == 0:
        raise Unsupported("it puts a dimension before rows whose number depends on data")
    return Rows(jnp.expand_dims(x.array, at), x.count)


def strided_slice(attrs: Attrs, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    """StridedSlice of all rows."""
    index = indexing.index_of(attrs, begin, end, strides)
    is_whole = index and (index[0] is Ellipsis or (isinstance(index[0], slice) and index[0] == slice(None, None, 1)))
    if index and index[0] is Ellipsis:  # takes all of what the others leave
        is_whole = len([part for part in index if part is not None]) - 1 < x.array.ndim
    if not is_whole or None in index[:1]:
        raise Unsupported("it takes some of the rows whose number depends on data")
    return Rows(x.array[index], x.count)


def transpose(attrs: Attrs, x: Any, permutation: Any) -> Any:
    """Transpose of what stands behind the first dimension."""
    if ints(permutation)[0] != 0:
        raise Unsupported("it moves the dimension of rows whose number depends on data")
    return Rows(jnp.transpose(x.array, ints(permutation)), x.count)


SIZED: dict[str, Handler] = {  # ops of shapes
    "StridedSlice": _picked, "Slice": _sliced, "GatherV2": _gathered, "Gather": _gathered, "Pack": _packed,
    "ConcatV2": _concatenated, "Prod": _product_of, "Cast": _cast, "ExpandDims": _expanded, "Reshape": reshape,
    "Mul": _arithmetic(lambda a, b: a * b, True), "FloorDiv": _arithmetic(_floor_divided, False),
    "Maximum": _arithmetic(lambda a, b: jnp.maximum(a, b) if hasattr(a, "dtype") else max(a, b), True),
    "DynamicStitch": _stitched, "Fill": fill, "Tile": tile, "Range": range_,
    "BroadcastTo": lambda attrs, x, shape: fill(attrs, shape, x),
    **{"UnsortedSegment" + kind: segment_sum(kind) for kind in ("Sum", "Prod", "Max", "Min")},
}  # fmt: skip
OF_ROWS: dict[str, Handler] = {  # ops of rows, beside what their own rules say
    "Shape": shape_of, "ShapeN": shape_of, "Size": size_of, "Reshape": reshape, "Squeeze": squeeze,
    "ExpandDims": expand_dims, "StridedSlice": strided_slice, "Transpose": transpose, "ConcatV2": concat,
    "Sum": _over_rows("Sum", lambda dtype: 0), "Prod": _over_rows("Prod", lambda dtype: 1),
    "Max": _over_rows("Max", indexing.lowest), "Min": _over_rows("Min", indexing.highest),
    "All": _over_rows("All", lambda dtype: True), "Any": _over_rows("Any", lambda dtype: False),
    "Mean": mean, "L2Loss": lambda attrs, x: reductions.l2_loss(attrs, _with_neutral(x, 0)),
    "DynamicStitch": stitch_of_parts, "ParallelDynamicStitch": stitch_of_parts,
    **{"UnsortedSegment" + kind: segment_sum(kind) for kind in ("Sum", "Prod", "Max", "Min")},
}  # fmt: skip

RULES = {
    "Unique": _unique_rule(2), "UniqueWithCounts": _unique_rule(3), "Where": Rule(where),
    "DynamicPartition": Rule(dynamic_partition), "DynamicStitch": Rule(dynamic_stitch),
    "ParallelDynamicStitch": Rule(dynamic_stitch),
}  # fmt: skip
