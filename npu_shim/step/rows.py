"""Data-sized rows: where they come from, and what is made of them and of their number.

Shapes of such rows, by which others are made, are `sizes`.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import grids, merged, paddings, sizes, turned, uniques
from npu_shim.step.masks import array_of, cleared, live, there
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules import indexing, reductions, sparse
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Dims, Rows, Size, Turned, ints, is_known, traced, whole

Handler = Callable[..., Any]

# -- where they come from ----------------------------------------------------------------------------------------------


def where(attrs: Attrs, condition: Any) -> Any:
    """Where: the indices of what is true (or not zero), int64 [count, rank]."""
    if is_known(condition):
        return np.argwhere(condition).astype(np.int64)
    condition = cleared(condition)
    flat = jnp.reshape(condition != np.zeros((), condition.dtype), (-1,))
    at = jnp.nonzero(flat, size=flat.shape[0], fill_value=0)[0]
    indices = jnp.stack(jnp.unravel_index(at, condition.shape), -1) if np.ndim(condition) else at[:, None][:, :0]
    return Rows(indices.astype(np.int64), jnp.sum(flat, dtype=np.int32))


def dynamic_partition(attrs: Attrs, x: Any, partitions: Any) -> Any:
    """DynamicPartition: the rows of each part, in their order."""
    flat = jnp.reshape(partitions, (-1,))
    rows = x.reshape((-1, *x.shape[np.ndim(partitions) :]))
    if is_known(partitions):
        parts = [rows[np.flatnonzero(np.reshape(partitions, -1) == part)] for part in range(attrs["num_partitions"])]
    else:
        parts = [_chosen(rows, flat == np.int32(part)) for part in range(attrs["num_partitions"])]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _chosen(rows: Any, mask: Any) -> Rows:
    rows = traced(rows)
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
    size = stitched_size(indices)
    rest = array_of(data[0]).shape[1:]
    result = jnp.zeros((size, *rest), array_of(data[0]).dtype)
    for places, part in zip(indices, data):
        result = result.at[live(places, size)].set(array_of(part), mode="drop")
    return result


def stitched_size(indices: Sequence[Any]) -> int:
    """How many rows there are if indices are of all parts of a tensor: as many as one part has room for."""
    return max(int(array_of(places).shape[0]) for places in indices)


def _with_room(x: Rows, most: int) -> Rows:
    """Rows with room for `most` of them."""
    more = most - x.array.shape[0]
    return Rows(jnp.pad(x.array, [(0, more), *[(0, 0)] * (x.array.ndim - 1)]), x.count) if more else x


# -- what is made by them ----------------------------------------------------------------------------------------------


def reshape(attrs: Attrs, x: Any, shape: Any) -> Any:
    """Reshape of rows: the first dimension that is not 1 stays one that depends on data."""
    if not isinstance(shape, Dims) and not is_known(shape):
        raise Unknown(1)
    dims = list(sizes.sizes_of(shape))
    first = next((at for at, size in enumerate(dims) if isinstance(size, Size) or size != 1), 0)
    if first and (isinstance(dims[first], Size) or dims[first] < 0):
        result = reshape(attrs, x, sizes.of(dims[first:], shape.dtype))
        if not isinstance(result, Rows):
            raise Unsupported(grids.WHY)
        return Turned(result.array.reshape((*dims[:first], *result.array.shape)), result.count, first)
    array = x.array if isinstance(x, Rows) else traced(sizes.as_tensor(x))
    rest = dims[1:]
    if isinstance(x, Rows) and sum(isinstance(size, Size) for size in dims) > 1 and isinstance(dims[0], Size):
        return grids.of_rows(x, dims)
    parts = merged.apart(x, dims) if isinstance(x, Rows) else None
    if parts is not None:
        return parts
    if not dims or any(isinstance(size, Size) or size < 0 for size in rest):
        raise Unsupported("it gives rows whose number depends on data another first dimension")
    each_row = int(np.prod(rest, dtype=np.int64))
    flat = array.reshape(-1)
    flat = jnp.pad(flat, (0, -flat.size % each_row)) if each_row else flat
    result = flat.reshape((flat.size // each_row if each_row else 0, *rest))
    old = int(np.prod(array.shape[1:], dtype=np.int64))
    if isinstance(x, Rows) and old == each_row:
        return _sized(result, dims[0]) if isinstance(dims[0], Size) else Rows(result, x.count)
    if isinstance(dims[0], Size):
        more = 0 if isinstance(x, Rows) else max(dims[0].most - result.shape[0], 0)
        return Rows(jnp.pad(result, [(0, more), *[(0, 0)] * len(rest)]) if more else result, dims[0].count)
    return Rows(result, x.count * np.int32(old) // np.int32(max(each_row, 1)))


def _sized(array: Any, size: Size) -> Rows:
    """Rows with room for as many as there may be of them."""
    return Rows(_with_room(Rows(array[: size.most], size.count), size.most).array, size.count)


def fill(attrs: Attrs, shape: Any, value: Any) -> Any:
    """Fill and BroadcastTo by a shape of which one dimension depends on data."""
    (at, open_one), *others = [(at, size) for at, size in enumerate(shape.sizes) if isinstance(size, Size)]
    if others:
        raise Unsupported("several dimensions depend on data")
    room = [size.most if isinstance(size, Size) else size for size in shape.sizes]
    return turned.of(jnp.broadcast_to(jnp.asarray(value), room), open_one.count, at)


def broadcast(attrs: Attrs, x: Any, shape: Any) -> Any:
    """BroadcastTo by such a shape: of rows each, of a single row as often as data says."""
    if not isinstance(x, Rows):
        return fill(attrs, shape, x)
    first, *rest = shape.sizes
    if not isinstance(first, Size) or len(shape.sizes) != x.array.ndim:
        raise Unsupported("it puts a dimension before rows whose number depends on data")
    places = jnp.minimum(np.arange(first.most, dtype=np.int32), x.count - np.int32(1))
    array = x.array if first.count is x.count else jnp.take(x.array, places, 0, mode="clip")
    return Rows(jnp.broadcast_to(array, (array.shape[0], *rest)), first.count)


def scatter_nd(attrs: Attrs, indices: Any, updates: Any, shape: Any) -> Any:
    """ScatterNd into as many rows as data says."""
    first, *rest = shape.sizes
    if not isinstance(first, Size) or any(isinstance(size, Size) for size in rest):
        raise Unsupported("a dimension other than the first depends on data")
    is_open = isinstance(indices, Rows) or isinstance(updates, Rows)
    rule = indexing.scatter_nd_of_rows if is_open else indexing.scatter_nd
    return Rows(rule(attrs, indices, updates, np.array((first.most, *rest))), first.count)


def tile(attrs: Attrs, x: Any, multiples: Any) -> Any:
    """Tile as often as data says along a dimension, or of rows."""
    first, *rest = sizes.sizes_of(multiples)
    open_ones = [at for at, size in enumerate((first, *rest)) if isinstance(size, Size)]
    if not isinstance(x, Rows):
        return _tiled(x, (first, *rest), *open_ones)
    if any(open_ones):
        return grids.tiled(x, (first, *rest))
    times, most = (first.count, first.most) if isinstance(first, Size) else (np.int32(first), first)
    array = jnp.tile(x.array, (1, *rest))
    places = np.arange(most * array.shape[0], dtype=np.int32) % jnp.maximum(x.count, np.int32(1))
    return Rows(array, x.count) if most == 1 else Rows(jnp.take(array, places, 0, mode="clip"), x.count * times)


def _tiled(x: Any, multiples: Sequence[Any], at: int, *others: int) -> Any:
    """A tensor as often as data says along one dimension."""
    if others:
        raise Unsupported("several dimensions depend on data")
    room = [size.most if isinstance(size, Size) else size for size in multiples]
    return turned.of(jnp.tile(x, room), _times(multiples[at].count, x.shape[at]), at)


def _times(count: Any, number: int) -> Any:
    """A number of rows, times another one: once it is the same number."""
    return count if number == 1 else count * np.int32(number)


def range_(attrs: Attrs, start: Any, limit: Any, delta: Any) -> Any:
    """Range with a limit that depends on data."""
    if not is_known(delta):
        raise Unsupported("its delta had to be known when the step is traced")
    dtype, step = next(v.dtype for v in (start, limit) if isinstance(v, Dims)), whole(delta)
    (low, least, _), (high, _, most) = sizes.bounds(start), sizes.bounds(limit)
    if step < 0:
        (low, _, most), (high, least, _) = sizes.bounds(start), sizes.bounds(limit)
    away = 1 if step > 0 else -1
    room = max(0, -(-(most - least) // abs(step)))
    is_all = step == 1 and is_known(start) and whole(start) == 0 and least >= 0  # a number that others may have too
    count = high if is_all else jnp.maximum((high - low + np.int32(step - away)) // np.int32(step), np.int32(0))
    return Rows(low.astype(dtype) + np.arange(room).astype(dtype) * np.array(step, dtype), count)


def segment_sum(kind: str) -> Handler:
    """UnsortedSegmentSum and its kin: of rows, by their number, or both."""

    def reduced(attrs: Attrs, x: Any, ids: Any, count: Any) -> Any:
        if not isinstance(count, Dims) and not is_known(count):
            raise Unknown(2)
        size = count.sizes[0] if isinstance(count, Dims) else None
        room = size.most if isinstance(size, Size) else whole(count)
        if isinstance(x, Rows) and isinstance(ids, Rows):
            x, ids = (_with_room(part, max(len(x.array), len(ids.array))) for part in (x, ids))
        places = live(ids, room, x)
        result = indexing.RULES["UnsortedSegment" + kind].apply(attrs, array_of(x), places, np.int32(room))
        return Rows(result, size.count) if isinstance(size, Size) else result

    return reduced


# -- joins -----------------------------------------------------------------------------------------------------------


def concat(attrs: Attrs, *values: Any) -> Any:
    """ConcatV2 of rows: one behind the other."""
    *parts, axis = values
    first = next(part for part in parts if isinstance(part, Rows))
    at = whole(axis) % first.array.ndim
    if at:
        return Rows(jnp.concatenate([array_of(part) for part in parts], at), first.count)
    room = sum(array_of(part).shape[0] for part in parts)
    result = jnp.zeros((room, *first.array.shape[1:]), first.array.dtype)
    end = jnp.int32(0)
    for part in parts:
        array = traced(array_of(part))
        places = jnp.arange(array.shape[0], dtype=np.int32) + end
        count = part.count if isinstance(part, Rows) else np.int32(array.shape[0])
        places = jnp.where(there(array.shape[0], count), places, np.int32(room))
        result = result.at[places].set(array, mode="drop")
        end = end + count
    return Rows(result, end)


def stack(attrs: Attrs, *values: Any) -> Rows:
    """Pack of rows, which are equally many, behind the first dimension."""
    rank = max(value.array.ndim for value in values if isinstance(value, Rows))
    if attrs["axis"] % (rank + 1) == 0 or not all(isinstance(value, Rows) for value in values):
        raise Unsupported("it puts a dimension before rows whose number depends on data, or joins them with others")
    arrays, count = turned.alike(values)
    return Rows(jnp.stack(arrays, attrs["axis"]), count)


MASKS = ("Where", "Reshape")  # ops that may take a mask


def same_places(node: Any, values: Sequence[Any]) -> Any:
    """A key that equal masks have, of an op that may say how many rows there are; None for other ones.

    Rows that are chosen twice by one mask are equally many, which only the same traced number shows.
    """
    x = values[0] if values else None
    if not isinstance(x, jax.Array) or not all(map(is_known, values[1:])):
        return None
    if node.op == "Where":
        return node.op, id(x)
    is_mask = node.op == "Reshape" and x.dtype == np.bool_
    return (node.op, id(x), ints(values[1]) if np.size(values[1]) else ()) if is_mask else None


def top_k(attrs: Attrs, x: Any, k: Any) -> Any:
    """TopKV2 of rows, or of as many elements of a vector as data says: what is not there comes last."""
    array = cleared(x, reductions.least(array_of(x).dtype))
    if not isinstance(k, Dims):
        result = reductions.top_k(attrs, array, k)
        return result if array.ndim == 1 else tuple(Rows(part, x.count) for part in result)
    (size,) = k.sizes
    if array.ndim > 1:
        raise Unsupported("it gives as many columns as data says")
    result = reductions.top_k(attrs, array, np.int32(min(size.most, array.shape[0])))
    return tuple(Rows(part, size.count) for part in result)


SEGMENTS = {
    name % kind: segment_sum(kind) for name in ("UnsortedSegment%s", "Segment%sV2") for kind in indexing.METHODS
}
SIZED: dict[str, Handler] = {  # ops that take shapes
    **sizes.HANDLERS, "Reshape": reshape, "Fill": fill, "Tile": tile, "Range": range_,
    "BroadcastTo": broadcast, "TopKV2": top_k, "Pad": paddings.pad, "PadV2": paddings.pad, "ScatterNd": scatter_nd,
    **SEGMENTS, **sparse.FOR_ROWS,
}  # fmt: skip
OF_ROWS: dict[str, Handler] = {  # ops of rows, beside what their own rules say
    **turned.ALONG, "Reshape": reshape, "ConcatV2": concat, "Tile": tile, "Pad": paddings.pad, "PadV2": paddings.pad,
    "Pack": stack, "TopKV2": top_k,
    "DynamicStitch": stitch_of_parts, "ParallelDynamicStitch": stitch_of_parts, **SEGMENTS,
}  # fmt: skip

RULES = {
    **dict.fromkeys(("Unique", "UniqueV2"), uniques.rule(2)),
    **dict.fromkeys(("UniqueWithCounts", "UniqueWithCountsV2"), uniques.rule(3)),
    "Where": Rule(where, rows=where),
    "DynamicPartition": Rule(dynamic_partition), "DynamicStitch": Rule(dynamic_stitch),
    "ParallelDynamicStitch": Rule(dynamic_stitch),
}  # fmt: skip
