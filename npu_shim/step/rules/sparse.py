"""Sparse tensors, as the indices and values that they are made of; segments by their ids."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import array_of, cleared, live, present, there
from npu_shim.step.platforms import summed_in, summed_widely
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.elementwise import truncated
from npu_shim.step.rules.segments import count_of
from npu_shim.step.rules.table import ALL, SEGMENTS, Attrs, Rule
from npu_shim.step.values import Dims, Rows, ints, is_known, traced, whole, xp


@summed_widely
def dense_product(attrs: Attrs, indices: Any, values: Any, shape: Any, dense: Any) -> Any:
    """SparseTensorDenseMatMul."""
    dense, values, sizes = traced(dense), traced(values), ints(shape)
    rows, columns = indices[:, 0], indices[:, 1]
    if attrs["adjoint_a"]:
        rows, columns, sizes, values = columns, rows, sizes[::-1], jnp.conj(values)
    if attrs["adjoint_b"]:
        dense = jnp.conj(dense.T)
    products = values[:, None] * jnp.take(dense, columns, 0, mode="clip")
    return jnp.zeros((sizes[0], dense.shape[1]), dense.dtype).at[rows].add(products, mode="drop")


def _of_rows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of (indices, values, shape, ...) for as many elements as data says: what is not there is left out.

    Its indices lie behind the end, where a scatter takes no notice of them, and its values are zeros.
    """

    def computed(attrs: Attrs, indices: Any, values: Any, shape: Any, *others: Any) -> Any:
        if not (isinstance(indices, Rows) and isinstance(values, Rows)):
            raise Unsupported("one of its indices and values is of a number that depends on data, the other is not")
        return rule(attrs, live(indices, ints(shape)), cleared(values), shape, *others)

    return computed


def _each_of_rows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a rule that gives a value for each."""

    def computed(attrs: Attrs, indices: Any, values: Any, *others: Any) -> Any:
        return Rows(_of_rows(rule)(attrs, indices, values, *others), values.count)

    return computed


def with_dense(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """SparseDenseCwiseAdd, Mul and Div: with the elements of a tensor that broadcasts to the shape."""

    def computed(attrs: Attrs, indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        sizes = ints(shape)
        full = jnp.broadcast_to(jnp.asarray(dense), sizes)
        at = tuple(indices[:, axis] for axis in range(len(sizes)))
        return function(traced(values), traced(full).at[at].get(mode="clip"))

    return computed


def dense_sum(attrs: Attrs, indices: Any, values: Any, shape: Any, dense: Any) -> Any:
    """SparseTensorDenseAdd."""
    at = tuple(indices[:, axis] for axis in range(len(ints(shape))))
    return traced(dense).at[at].add(traced(values), mode="drop")


@summed_widely
def softmax(attrs: Attrs, indices: Any, values: Any, shape: Any) -> Any:
    """SparseSoftmax: over the elements that are there of each row, the last dimension; those come in order."""
    values, count = traced(values), values.shape[0]
    lead = indices[:, :-1]
    starts = jnp.concatenate([jnp.zeros(min(count, 1), bool), jnp.any(lead[1:] != lead[:-1], 1)])
    row = jnp.cumsum(starts, dtype=np.int32)
    most = jnp.full(count, -np.inf, values.dtype).at[row].max(values)
    powers = jnp.exp(values - most[row])
    return powers / jnp.zeros(count, values.dtype).at[row].add(powers)[row]


def product(attrs: Attrs, a: Any, b: Any) -> Any:
    """SparseMatMul: of dense matrices, most of whose elements are zero; float32."""
    a, b = (traced(part).astype(np.float32) for part in (a, b))
    return (a.T if attrs["transpose_a"] else a) @ (b.T if attrs["transpose_b"] else b)


def to_dense(attrs: Attrs, indices: Any, shape: Any, values: Any, default: Any) -> Any:
    """SparseToDense: indices are a scalar, a vector, or a row of them for each value."""
    sizes = ints(shape)
    places = traced(indices).reshape((-1, len(sizes)))
    values = jnp.broadcast_to(traced(values), places.shape[:1])
    full = jnp.full(sizes, default, values.dtype)
    return full.at[tuple(places[:, axis] for axis in range(len(sizes)))].set(values, mode="drop")


def to_dense_of_rows(attrs: Attrs, indices: Any, shape: Any, values: Any, default: Any) -> Any:
    """The same of as many elements as data says: the places of what is not there lie behind the end."""
    return to_dense(attrs, live(indices, ints(shape), values), shape, array_of(values), default)


@summed_widely
def reduce_sum(attrs: Attrs, indices: Any, values: Any, shape: Any, axes: Any) -> Any:
    """SparseReduceSum."""
    values, sizes = traced(values), ints(shape)
    full = jnp.zeros(sizes, values.dtype).at[tuple(indices[:, at] for at in range(len(sizes)))].add(values, mode="drop")
    return jnp.sum(full, tuple(axis % len(sizes) for axis in ints(axes)), keepdims=attrs["keep_dims"])


def list_difference(attrs: Attrs, x: Any, y: Any) -> Any:
    """ListDiff: (what of x is not in y, where it stood)."""
    at = np.flatnonzero(~np.isin(x, y))
    return x[at], at.astype(attrs["out_idx"])


SETS: dict[str, Any] = {"a-b": np.setdiff1d, "intersection": np.intersect1d, "union": np.union1d}


def set_operation(attrs: Attrs, x: Any, y: Any) -> Any:
    """DenseToDenseSetOperation: (where, what, shape) of the sets of each last dimension, in order."""
    x, y, kind = np.asarray(x), np.asarray(y), attrs["set_operation"]
    if kind == "b-a":
        x, y, kind = y, x, "a-b"
    groups = x.shape[:-1]
    sets = {at: SETS[kind](x[at], y[at]) for at in np.ndindex(groups)}
    places = [(*at, number) for at, numbers in sets.items() for number in range(len(numbers))]
    shape = [*groups, max(map(len, sets.values()), default=0)]
    values = np.concatenate([x.reshape(-1)[:0], *sets.values()]).astype(x.dtype)
    return np.array(places, np.int64).reshape(len(places), len(shape)), values, np.array(shape, np.int64)


def reshape(attrs: Attrs, indices: Any, shape: Any, new: Any) -> Any:
    """SparseReshape: (where each element stands in the new shape, that shape, of which -1 is what is left)."""
    old, sizes = ints(shape), list(ints(new))
    if -1 in sizes:
        others = int(np.prod([size for size in sizes if size >= 0], dtype=np.int64))
        sizes[sizes.index(-1)] = int(np.prod(old, dtype=np.int64)) // others if others else 0
    array = array_of(indices)
    library = xp(array)
    flat = library.zeros(array.shape[:1], np.int64)
    for at, size in enumerate(old):
        flat = flat * np.int64(size) + array[:, at]
    columns = []
    for size in sizes[::-1]:
        columns.append(flat % np.int64(max(size, 1)))
        flat = flat // np.int64(max(size, 1))
    result = library.stack(columns[::-1], -1) if columns else library.zeros((array.shape[0], 0), np.int64)
    return Rows(result, indices.count) if isinstance(indices, Rows) else result, np.array(sizes, np.int64)


def bucketize(attrs: Attrs, x: Any) -> Any:
    """Bucketize: how many boundaries are not above each number."""
    boundaries = np.array(attrs["boundaries"], np.float32)
    places = xp(x).searchsorted(boundaries, x.astype(np.float32), side="right")
    return places.astype(np.int32)


# -- segments ----------------------------------------------------------------------------------------------------------


def _mean(total: Any, count: Any) -> Any:
    return total / jnp.maximum(count, np.array(1, count.dtype))


def _over_root(total: Any, count: Any) -> Any:
    return total / jnp.sqrt(jnp.maximum(count, np.array(1, count.dtype)))


WAYS: dict[str, Any] = {"Sum": None, "Mean": _mean, "SqrtN": _over_root}  # what is made of a sum and its length


def _counts(ids: Any, size: int, like: Any) -> Any:
    count = jnp.zeros(size, like.dtype).at[ids].add(np.array(1, like.dtype), mode="drop")
    return count.reshape((-1,) + (1,) * (like.ndim - 1))


def _segments(kind: str) -> Callable[..., Any]:
    @summed_widely
    def summed(attrs: Attrs, data: Any, indices: Any, ids: Any, count: Any = None) -> Any:
        size = count_of(attrs, ids) if count is None else whole(count)
        rows = jnp.take(traced(data), indices, 0, mode="clip")
        total = jnp.zeros((size, *rows.shape[1:]), rows.dtype).at[ids].add(rows, mode="drop")
        way = WAYS[kind]
        return total if way is None else way(total, _counts(ids, size, rows))

    return summed


def _segments_of_rows(kind: str) -> Callable[..., Any]:
    """The same of as many ids as data says, or of rows of which data says how many there are: ids name those alone."""

    def summed(attrs: Attrs, data: Any, indices: Any, ids: Any, count: Any = None) -> Any:
        data = array_of(data)
        if not (isinstance(indices, Rows) or isinstance(ids, Rows)):
            return _segments(kind)(attrs, data, indices, ids, count)
        size = attrs[SEGMENTS] if count is None else whole(count)
        return _segments(kind)(attrs, data, array_of(indices), live(ids, size, indices), np.int32(size))

    return summed


def _gradient_of_rows(kind: str) -> Callable[..., Any]:
    """SparseSegmentSumGrad and its kin of as many ids as data says."""

    def spread(attrs: Attrs, g: Any, indices: Any, ids: Any, rows: Any) -> Any:
        if isinstance(g, Rows):
            raise Unsupported("it takes the gradients of as many segments as data says")
        indices, ids = live(indices, whole(rows), ids), live(ids, g.shape[0], indices)
        return _segments_gradient(kind)(attrs, g, indices, ids, rows)

    return spread


def _segments_gradient(kind: str) -> Callable[..., Any]:
    @summed_widely
    def spread(attrs: Attrs, g: Any, indices: Any, ids: Any, rows: Any) -> Any:
        g, way = traced(g), WAYS[kind]
        part = g if way is None else way(g, _counts(ids, g.shape[0], g))
        taken = jnp.take(part, ids, 0, mode="clip")
        return jnp.zeros((whole(rows), *g.shape[1:]), g.dtype).at[indices].add(taken, mode="drop")

    return spread


def _gradient_for_rows(kind: str) -> Callable[..., Any]:
    """SparseSegmentSumGrad and its kin for rows of which data says how many there are."""

    def spread(attrs: Attrs, g: Any, indices: Any, ids: Any, rows: Dims) -> Any:
        (size,) = rows.sizes
        is_open = any(isinstance(value, Rows) for value in (g, indices, ids))
        rule = (_gradient_of_rows if is_open else _segments_gradient)(kind)
        return Rows(rule(attrs, g, indices, ids, np.int32(size.most)), size.count)

    return spread


def _sorted_segments_gradient(kind: str) -> Callable[..., Any]:
    def spread(attrs: Attrs, g: Any, indices: Any, ids: Any, rows: Any) -> Any:
        """SparseSegmentSumGradV2 and its kin: (the gradient of each row that is named, their numbers in order)."""
        if isinstance(g, Rows):
            raise Unsupported("it takes the gradients of as many segments as data says")
        is_open = isinstance(indices, Rows) or isinstance(ids, Rows)
        if is_open:
            indices, ids = live(indices, whole(rows), ids), live(ids, g.shape[0], indices)
        dtype, g, way, indices = g.dtype, traced(g).astype(summed_in(g.dtype)), WAYS[kind], traced(indices)
        part = g if way is None else way(g, _counts(ids, g.shape[0], g))
        taken, size = jnp.take(part, ids, 0, mode="clip"), indices.shape[0]
        order = jnp.argsort(indices)
        ordered = indices[order]
        starts = jnp.concatenate([jnp.ones(min(size, 1), bool), ordered[1:] != ordered[:-1]])
        is_there = ordered < whole(rows)  # what is not comes last, and belongs to no group
        starts = starts & is_there if is_open else starts
        group = jnp.cumsum(starts, dtype=np.int32) - np.int32(1)
        group = jnp.where(is_there, group, np.int32(size)) if is_open else group
        sums = jnp.zeros((size, *g.shape[1:]), g.dtype).at[group].add(taken[order], mode="drop")
        count = jnp.sum(starts, dtype=np.int32)
        return Rows(sums.astype(dtype), count), Rows(jnp.zeros_like(indices).at[group].set(ordered, mode="drop"), count)

    return spread


# -- sums of two ---


def groups(parts: Sequence[Any]) -> tuple[Any, Any, Any]:
    """(Indices of all parts in order, whether each is there, the number of its group: those alike, in order)."""
    indices = jnp.concatenate([traced(array_of(part)) for part in parts])
    is_there = jnp.concatenate(list(map(present, parts)))
    count, columns = indices.shape
    order = jnp.lexsort((*(indices[:, at] for at in range(columns - 1, -1, -1)), ~is_there))
    ordered = indices[order]
    starts = jnp.concatenate([jnp.zeros(min(count, 1), bool), jnp.any(ordered[1:] != ordered[:-1], 1)])
    group = jnp.zeros(count, np.int32).at[order].set(jnp.cumsum(starts, dtype=np.int32))
    return indices, is_there, jnp.where(is_there, group, np.int32(count))


def _alike(*parts: Any) -> bool:
    """Whether these are the indices of one sparse tensor, as of two that were computed of it."""
    first = parts[0]
    if isinstance(first, Rows):
        return all(isinstance(part, Rows) and part.array is first.array for part in parts)
    return all(part is first or (is_known(part, first) and np.array_equal(part, first)) for part in parts)


def add(
    attrs: Attrs, indices: Any, values: Any, shape: Any, others: Any, other_values: Any, other_shape: Any, least: Any
) -> Any:  # fmt: skip
    """SparseAdd: (indices, values, shape); of as many elements as data says, but where both have the same indices.

    Of elements in one place the sum is left out if it is smaller than `least`.
    """
    if _alike(indices, others) and not least:
        if isinstance(values, Rows):
            return indices, Rows(values.array + array_of(other_values), values.count), shape
        return indices, traced(values) + traced(other_values), shape
    places, is_there, group = groups([indices, others])
    amounts = jnp.concatenate([traced(array_of(part)) for part in (values, other_values)])
    count, zero = amounts.shape[0], np.zeros((), amounts.dtype)
    sums = jnp.zeros(count, amounts.dtype).at[group].add(jnp.where(is_there, amounts, zero), mode="drop")
    number = jnp.zeros(count, np.int32).at[group].add(np.int32(1), mode="drop")
    kept = (number == np.int32(1)) | ((number > np.int32(1)) & (jnp.abs(sums) >= np.asarray(least)))
    order = jnp.argsort(~kept, stable=True)
    total = jnp.sum(kept, dtype=np.int32)
    first = jnp.zeros_like(places).at[group].set(places, mode="drop")
    return Rows(first[order], total), Rows(jnp.where(kept, sums, zero)[order], total), shape


def add_gradient(attrs: Attrs, g: Any, indices: Any, others: Any, summed: Any) -> Any:
    """SparseAddGrad: (of the values of the first, of the second)."""
    if _alike(indices, others, summed):
        return g, g
    return tuple(taken(g, summed, [indices, others]))


def taken(values: Any, places: Any, parts: Sequence[Any]) -> list[Any]:
    """For the indices of each part the values that have these, of some that stand at places; zeros for others."""
    amounts, (_, _, group) = traced(cleared(values)), groups([places, *parts])
    room = amounts.shape[0]
    full = jnp.zeros(group.shape[0], amounts.dtype).at[group[:room]].set(amounts, mode="drop")
    ends = np.cumsum([room, *(array_of(part).shape[0] for part in parts)]).tolist()
    of_each = [full.at[group[a:b]].get(mode="fill", fill_value=0) for a, b in zip(ends, ends[1:])]
    return [Rows(one, at.count) if isinstance(at, Rows) else one for at, one in zip(parts, of_each)]


# -- empty rows --------------------------------------------------------------------------------------------------------


def fill_empty_rows(attrs: Attrs, indices: Any, values: Any, shape: Any, default: Any) -> Any:
    """SparseFillEmptyRows: (indices, values, which rows had none, where each value went)."""
    is_open = isinstance(indices, Rows)
    count = indices.count if is_open else np.int32(indices.shape[0])
    indices, values = traced(array_of(indices)), traced(array_of(values))
    rows, room = ints(shape)[0], indices.shape[0]
    is_there = there(room, count)
    row = jnp.where(is_there, indices[:, 0].astype(np.int32), np.int32(rows))
    lengths = jnp.zeros(rows, np.int32).at[row].add(np.int32(1), mode="drop")
    starts = jnp.cumsum(jnp.maximum(lengths, np.int32(1)), dtype=np.int32) - jnp.maximum(lengths, np.int32(1))
    order = jnp.argsort(row, stable=True)
    first = (jnp.cumsum(lengths, dtype=np.int32) - lengths).at[row[order]].get(mode="clip")
    rank = jnp.arange(room, dtype=np.int32) - first
    places = jnp.zeros(room, np.int32).at[order].set(starts.at[row[order]].get(mode="clip") + rank)
    at = jnp.where(is_there, places, np.int32(room + rows))
    blank = jnp.zeros((rows, indices.shape[1]), indices.dtype).at[:, 0].set(np.arange(rows).astype(indices.dtype))
    empty = lengths == np.int32(0)
    at_empty = jnp.where(empty, starts, np.int32(room + rows))
    out = jnp.zeros((room + rows, indices.shape[1]), indices.dtype).at[at_empty].set(blank, mode="drop")
    filled = jnp.zeros(room + rows, values.dtype).at[at_empty].set(jnp.asarray(default), mode="drop")
    out, filled = out.at[at].set(indices, mode="drop"), filled.at[at].set(values, mode="drop")
    total = count + jnp.sum(empty, dtype=np.int32)
    went = places.astype(np.int64)
    return Rows(out, total), Rows(filled, total), empty, Rows(went, count) if is_open else went


def fill_empty_rows_gradient(attrs: Attrs, places: Any, g: Any) -> Any:
    """SparseFillEmptyRowsGrad: (of the values, of the default, to which all others add)."""
    array, went = traced(array_of(g)), live(places, array_of(g).shape[0])
    of_values = array.at[went].get(mode="fill", fill_value=0)
    others = traced(cleared(g)).at[went].set(np.zeros((), array.dtype), mode="drop")
    return Rows(of_values, places.count) if isinstance(places, Rows) else of_values, jnp.sum(others)


def reorder(attrs: Attrs, indices: Any, values: Any, shape: Any) -> Any:
    """SparseReorder: row-major."""
    if not indices.shape[0]:
        return indices, values
    if indices.shape[1] > len(ints(shape)):
        raise Unsupported("its indices have more columns than its shape has sizes")
    order = xp(indices).lexsort(tuple(indices[:, at] for at in range(indices.shape[1] - 1, -1, -1)))
    return indices[order], traced(values)[order]


FOR_ROWS: dict[str, Callable[..., Any]] = {"SparseSegment%sGrad" % kind: _gradient_for_rows(kind) for kind in WAYS}

RULES = {
    "SparseTensorDenseMatMul": Rule(dense_product, known=(2,), rows=_of_rows(dense_product)),
    "SparseTensorDenseAdd": Rule(dense_sum, known=(2,), rows=_of_rows(dense_sum)),
    "SparseSoftmax": Rule(softmax, rows=_each_of_rows(softmax)),
    **{"SparseDenseCwise" + name: Rule(with_dense(function), known=(2,), rows=_each_of_rows(with_dense(function)))
       for name, function in (("Add", jnp.add), ("Mul", jnp.multiply), ("Div", truncated))},
    "SparseMatMul": Rule(product),
    "SparseToDense": Rule(to_dense, known=(1,), rows=to_dense_of_rows),
    "SparseReduceSum": Rule(reduce_sum, known=(2, 3), rows=_of_rows(reduce_sum)),
    "SparseAdd": Rule(add, known=(6,), rows=add),
    "SparseAddGrad": Rule(add_gradient, rows=add_gradient),
    "SparseReorder": Rule(reorder, known=(2,)),
    "SparseReshape": Rule(reshape, known=(1, 2), rows=reshape),
    "SparseFillEmptyRows": Rule(fill_empty_rows, known=(2,), rows=fill_empty_rows),
    "SparseFillEmptyRowsGrad": Rule(fill_empty_rows_gradient, rows=fill_empty_rows_gradient),
    "DenseToDenseSetOperation": Rule(set_operation, known=(ALL,)),
    "ListDiff": Rule(list_difference, known=(ALL,)),
    "Bucketize": Rule(bucketize),
    **{"SparseSegment" + kind: Rule(_segments(kind), rows=_segments_of_rows(kind)) for kind in WAYS},
    **{"SparseSegment%sWithNumSegments" % kind: Rule(_segments(kind), known=(3,), rows=_segments_of_rows(kind))
       for kind in WAYS},
    **{"SparseSegment%sGrad" % kind: Rule(_segments_gradient(kind), known=(3,), rows=_gradient_of_rows(kind))
       for kind in WAYS},
    **{"SparseSegment%sGradV2" % kind: Rule(_sorted_segments_gradient(kind), known=(3,),
                                            rows=_sorted_segments_gradient(kind)) for kind in WAYS},
}  # fmt: skip
