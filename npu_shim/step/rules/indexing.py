"""Elements taken from tensors and put into them: slices, gathers, scatters, segments.

An index that is out of range is TensorFlow's error on a CPU and undefined on a GPU; here a gather takes the nearest
element and a scatter leaves it out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import array_of, live
from npu_shim.step.platforms import summed_widely
from npu_shim.step.refusals import Unknown, Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, Turned, ints, is_known, traced, whole

# -- slices ------------------------------------------------------------------------------------------------------------


def slice_(attrs: Attrs, x: Any, begin: Any, size: Any) -> Any:
    """Slice: a size of -1 takes the rest. One at a traced place is taken by `row_slices`."""
    pairs = zip(ints(begin), ints(size)) if x.ndim else ()
    return x[tuple(slice(at, None if n < 0 else at + n) for at, n in pairs)]


def _bit(attrs: Attrs, mask: str, at: int) -> bool:
    return bool(attrs[mask] >> at & 1)


def index_of(attrs: Attrs, begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
    """What numpy calls the index of a StridedSlice, for known begins and ends."""
    index: list[Any] = []
    for at, (low, high, step) in enumerate(zip(ints(begin), ints(end), ints(strides))):
        if _bit(attrs, "ellipsis_mask", at):
            index.append(Ellipsis)
        elif _bit(attrs, "new_axis_mask", at):
            index.append(None)
        elif _bit(attrs, "shrink_axis_mask", at):
            index.append(low)
        else:
            first = None if _bit(attrs, "begin_mask", at) else low
            last = None if _bit(attrs, "end_mask", at) else high
            index.append(slice(first, last, step))
    return tuple(index) if begin.size else ()


def strided_slice(attrs: Attrs, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    """StridedSlice; of a traced begin only single elements of axes are taken."""
    if is_known(begin, end):
        return x[index_of(attrs, begin, end, strides)]
    return x[_traced_index(attrs, begin, end, strides)]


def _traced_index(attrs: Attrs, begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
    index: list[Any] = []
    for at in range(begin.shape[0]):
        if _bit(attrs, "ellipsis_mask", at):
            index.append(Ellipsis)
        elif _bit(attrs, "new_axis_mask", at):
            index.append(None)
        elif _bit(attrs, "shrink_axis_mask", at):
            index.append(begin[at])
        elif _bit(attrs, "begin_mask", at) and _bit(attrs, "end_mask", at):
            index.append(slice(None, None, int(strides[at])))
        else:
            raise Unknown(1 if not is_known(begin) else 2)
    return tuple(index)


def strided_slice_assign(attrs: Attrs, old: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
    """The new value of a variable, part of which is set."""
    index = index_of(attrs, begin, end, strides) if is_known(begin, end) else _traced_index(attrs, begin, end, strides)
    return traced(old).at[index].set(value)


def strided_slice_grad(attrs: Attrs, shape: Any, begin: Any, end: Any, strides: Any, gradient: Any) -> Any:
    """StridedSliceGrad."""
    zeros = jnp.zeros(ints(shape) if shape.size else (), gradient.dtype)
    known = is_known(begin, end)
    index = index_of(attrs, begin, end, strides) if known else _traced_index(attrs, begin, end, strides)
    return zeros.at[index].set(gradient)


def tensor_strided_slice_update(attrs: Attrs, x: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
    """TensorStridedSliceUpdate."""
    return jnp.asarray(x).at[index_of(attrs, begin, end, strides)].set(value)


# -- gathers -----------------------------------------------------------------------------------------------------------


def gather(attrs: Attrs, x: Any, indices: Any, axis: Any) -> Any:
    """GatherV2."""
    batch = attrs.get("batch_dims", 0)
    batch = batch + indices.ndim if batch < 0 else batch
    at = whole(axis) % max(x.ndim, 1)
    if batch:
        take = lambda one, i: gather({}, one, i, np.int32(at - batch))  # noqa: E731
        for _ in range(batch):
            take = jax.vmap(take)
        return take(jnp.asarray(x), jnp.asarray(indices))
    return np.take(x, indices, at) if is_known(x, indices) else jnp.take(x, indices, at, mode="clip")


def gather_rows(attrs: Attrs, x: Any, indices: Any, axis: Any) -> Any:
    """GatherV2 by indices whose number depends on data, or of rows of which there are."""
    array = array_of(x)
    at = whole(axis) % max(array.ndim, 1)
    if not isinstance(indices, Rows):
        result = gather(attrs, array, indices, axis)
        return Rows(result, x.count) if isinstance(x, Rows) and at else result
    if at == 0:
        return Rows(gather(attrs, array, indices.array, axis), indices.count)
    if isinstance(x, Rows) or attrs.get("batch_dims", 0):
        raise Unsupported("its indices are of an axis other than the first, and two dimensions depend on data")
    return Turned(gather(attrs, array, indices.array, axis), indices.count, at)


def gather_nd(attrs: Attrs, x: Any, indices: Any) -> Any:
    """GatherNd."""
    depth = indices.shape[-1]
    if depth == 0:
        return jnp.broadcast_to(x, (*indices.shape[:-1], *x.shape))
    if is_known(x, indices):
        return x[tuple(np.moveaxis(indices, -1, 0))]
    bounds = np.array(x.shape[:depth]).astype(indices.dtype)
    safe = jnp.clip(indices, np.zeros((), indices.dtype), bounds - np.ones((), indices.dtype))
    return jnp.asarray(x)[tuple(jnp.moveaxis(safe, -1, 0))]


def gather_nd_rows(attrs: Attrs, x: Any, indices: Any) -> Any:
    """GatherNd by indices whose number depends on data, or of rows of which there are."""
    if isinstance(x, Rows) and not array_of(indices).shape[-1]:
        raise Unsupported("its indices are empty: each takes all of the rows whose number depends on data")
    result = gather_nd(attrs, array_of(x), array_of(indices))
    return Rows(result, indices.count) if isinstance(indices, Rows) else result


# -- scatters ----------------------------------------------------------------------------------------------------------


def put(method: str, array: Any, index: Any, updates: Any) -> Any:
    """An array with updates at an index of numpy's, by a method of its `at`; what is out of range is left out.

    Indices below zero are out of range too: nothing is compared with zero, since XLA itself leaves them out.
    """
    return getattr(jnp.asarray(array).at[index], method)(updates, mode="drop", wrap_negative_indices=False)


def scattered(method: str, array: Any, index: Any, updates: Any) -> Any:
    """The same; a NaN among the updates is no maximum and no minimum, as in the kernels."""
    if method in ("max", "min") and jnp.issubdtype(updates.dtype, np.inexact):
        least = np.array(-np.inf if method == "max" else np.inf, updates.dtype)
        updates = jnp.where(jnp.isnan(updates), least, updates)
    return put(method, array, index, updates)


def scattered_at(method: str, array: Any, indices: Any, updates: Any) -> Any:
    """The same by indices [..., depth] of the first axes."""
    return scattered(method, array, tuple(jnp.moveaxis(jnp.asarray(indices), -1, 0)), updates)


@summed_widely
def scatter_nd(attrs: Attrs, indices: Any, updates: Any, shape: Any) -> Any:
    """ScatterNd: updates of one place add up."""
    zeros = jnp.zeros(ints(shape), updates.dtype)
    return scattered_at("add", zeros, indices, updates)


def scatter_nd_of_rows(attrs: Attrs, indices: Any, updates: Any, shape: Any) -> Any:
    """The same of as many as data says: what is not there goes nowhere."""
    places = array_of(indices)
    if places.ndim != 2 or places.shape[1] == 0:
        raise Unsupported("its indices have other dimensions than two")
    return scatter_nd(attrs, live(indices, ints(shape)[: places.shape[1]], updates), traced(array_of(updates)), shape)


def _tensor_scatter(method: str) -> Rule:
    def updated(attrs: Attrs, x: Any, indices: Any, updates: Any) -> Any:
        return scattered_at(method, x, indices, updates)

    return Rule(summed_widely(updated) if method in ("add", "subtract") else updated)


# -- segments ----------------------------------------------------------------------------------------------------------

STARTS = {"Sum": lambda dtype: 0, "Prod": lambda dtype: 1, "Max": lambda dtype: lowest(dtype),
          "Min": lambda dtype: highest(dtype)}  # fmt: skip
METHODS = {"Sum": "add", "Prod": "multiply", "Max": "max", "Min": "min"}


def lowest(dtype: Any) -> Any:
    """The smallest number of a dtype, of floats their lowest finite one."""
    return jnp.finfo(dtype).min if jnp.issubdtype(dtype, np.inexact) else jnp.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """The largest number of a dtype, of floats their highest finite one."""
    return jnp.finfo(dtype).max if jnp.issubdtype(dtype, np.inexact) else jnp.iinfo(dtype).max


def _unsorted(kind: str) -> Rule:
    def reduced(attrs: Attrs, x: Any, ids: Any, count: Any) -> Any:
        x = traced(x)
        rest = x.shape[np.ndim(ids) :]
        rows, places = x.reshape((-1, *rest)), jnp.reshape(ids, (-1,))
        start = jnp.full((whole(count), *rest), STARTS[kind](x.dtype), x.dtype)
        return put(METHODS[kind], start, places, rows)

    return Rule(summed_widely(reduced) if kind in ("Sum", "Prod") else reduced, known=(2,))


RULES = {
    "Slice": Rule(slice_, known=(1, 2)),
    "StridedSlice": Rule(strided_slice, known=(3,)),
    "StridedSliceGrad": Rule(strided_slice_grad, known=(0, 3)),
    "TensorStridedSliceUpdate": Rule(tensor_strided_slice_update, known=(1, 2, 3)),
    "Gather": Rule(lambda attrs, x, indices: gather({}, x, indices, np.int32(0)),
                   rows=lambda attrs, x, indices: gather_rows({}, x, indices, np.int32(0))),
    "GatherV2": Rule(gather, known=(2,), rows=gather_rows),
    "GatherNd": Rule(gather_nd, rows=gather_nd_rows),
    "ScatterNd": Rule(scatter_nd, known=(2,), rows=scatter_nd_of_rows),
    "TensorScatterUpdate": _tensor_scatter("set"),
    "TensorScatterAdd": _tensor_scatter("add"),
    "TensorScatterSub": _tensor_scatter("subtract"),
    "ScatterNdNonAliasingAdd": _tensor_scatter("add"),
    "TensorScatterMax": _tensor_scatter("max"),
    "TensorScatterMin": _tensor_scatter("min"),
    **{"UnsortedSegment" + kind: _unsorted(kind) for kind in METHODS},
    **{"Segment%sV2" % kind: _unsorted(kind) for kind in METHODS},
}  # fmt: skip
