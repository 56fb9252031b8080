"""Sparse tensors, as the indices and values that they are made of; segments by their ids."""

from __future__ import annotations

from typing import Any, Callable

import jax.numpy as jnp
import numpy as np

from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import ALL, Attrs, Rule
from npu_shim.step.values import ints, traced, whole, xp


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


def reduce_sum(attrs: Attrs, indices: Any, values: Any, shape: Any, axes: Any) -> Any:
    """SparseReduceSum."""
    values, sizes = traced(values), ints(shape)
    full = jnp.zeros(sizes, values.dtype).at[tuple(indices[:, at] for at in range(len(sizes)))].add(values)
    return jnp.sum(full, tuple(axis % len(sizes) for axis in ints(axes)), keepdims=attrs["keep_dims"])


def list_difference(attrs: Attrs, x: Any, y: Any) -> Any:
    """ListDiff: (what of x is not in y, where it stood)."""
    at = np.flatnonzero(~np.isin(x, y))
    return x[at], at.astype(attrs["out_idx"])


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
    def summed(attrs: Attrs, data: Any, indices: Any, ids: Any, count: Any = None) -> Any:
        if count is None:
            size = int(ids[-1]) + 1 if ids.size else 0
        else:
            size = whole(count)
        rows = jnp.take(traced(data), indices, 0, mode="clip")
        total = jnp.zeros((size, *rows.shape[1:]), rows.dtype).at[ids].add(rows, mode="drop")
        way = WAYS[kind]
        return total if way is None else way(total, _counts(ids, size, rows))

    return summed


def _segments_gradient(kind: str) -> Callable[..., Any]:
    def spread(attrs: Attrs, g: Any, indices: Any, ids: Any, rows: Any) -> Any:
        g, way = traced(g), WAYS[kind]
        part = g if way is None else way(g, _counts(ids, g.shape[0], g))
        taken = jnp.take(part, ids, 0, mode="clip")
        return jnp.zeros((whole(rows), *g.shape[1:]), g.dtype).at[indices].add(taken, mode="drop")

    return spread


def reorder(attrs: Attrs, indices: Any, values: Any, shape: Any) -> Any:
    """SparseReorder: row-major."""
    if not indices.shape[0]:
        return indices, values
    if indices.shape[1] > len(ints(shape)):
        raise Unsupported("its indices have more columns than its shape has sizes")
    order = xp(indices).lexsort(tuple(indices[:, at] for at in range(indices.shape[1] - 1, -1, -1)))
    return indices[order], traced(values)[order]


RULES = {
    "SparseTensorDenseMatMul": Rule(dense_product, known=(2,)),
    "SparseMatMul": Rule(product),
    "SparseToDense": Rule(to_dense, known=(1,)),
    "SparseReduceSum": Rule(reduce_sum, known=(2, 3)),
    "SparseReorder": Rule(reorder, known=(2,)),
    "ListDiff": Rule(list_difference, known=(ALL,)),
    "Bucketize": Rule(bucketize),
    **{"SparseSegment" + kind: Rule(_segments(kind), known=(2,)) for kind in WAYS},
    **{"SparseSegment%sWithNumSegments" % kind: Rule(_segments(kind), known=(3,)) for kind in WAYS},
    **{"SparseSegment%sGrad" % kind: Rule(_segments_gradient(kind), known=(3,)) for kind in WAYS},
}
