"""Rows of which the counted dimension has been moved, as `tf.nn.softmax(rows, axis=0)` does.

What computes each element by itself takes them, as do sums, softmax over the counted dimension, products that add over
it, and transposes, which bring it back.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step import sizes
from npu_shim.step.masks import common, masked, repeated
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import indexing, nn, products, reductions
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, Turned, ints, whole

WHY = "a dimension other than its first depends on data"


def of(array: Any, count: Any, axis: int) -> Any:
    """A tensor whose dimension `axis` depends on data."""
    return Turned(array, count, axis) if axis else Rows(array, count)


def as_rows(x: Turned) -> Rows:
    """Its rows, where all dimensions in front of them are 1; Unsupported for others."""
    if x.array.shape[: x.axis] != (1,) * x.axis:
        raise Unsupported("it gives a dimension that depends on data another place")
    return Rows(x.array.reshape(x.array.shape[x.axis :]), x.count)


def computed(row: Rule, node: Any, values: Sequence[Any]) -> Any:
    """What a rule gives for values of which some are Turned; Unsupported if it does not take them."""
    if node.op in HANDLERS:
        return HANDLERS[node.op](node.attrs, *values)
    if row.rows != "each":
        raise Unsupported("it takes a tensor of which a dimension other than the first depends on data")
    return elementwise(row, node.attrs, values)


def elementwise(row: Rule, attrs: Attrs, values: Sequence[Any]) -> Any:
    """Element by element: what is counted stands in one place from the end, with as many elements in all of them."""
    open_ones = [v if isinstance(v, Turned) else Turned(*v, 0) for v in values if isinstance(v, (Rows, Turned))]
    places = {value.array.ndim - value.axis for value in open_ones}
    plain = [v.shape for v in values if not isinstance(v, (Rows, Turned)) and len(v.shape) >= min(places)]
    if len(places) > 1 or any(shape[-place] != 1 for shape in plain for place in places):
        raise Unsupported("it joins a dimension that depends on data with another one")
    counts = [value.count for value in open_ones]
    is_one = all(count is counts[0] for count in counts)
    arrays = iter([v.array if is_one else repeated(v.array, v.count, v.axis) for v in open_ones])
    result = row.apply(attrs, *[next(arrays) if isinstance(v, (Rows, Turned)) else v for v in values])
    return of(result, common(counts), result.ndim - places.pop())


def _transposed(attrs: Attrs, x: Turned, permutation: Any) -> Any:
    return of(jnp.transpose(x.array, ints(permutation)), x.count, ints(permutation).index(x.axis))


def _normalized(rule: Callable[..., Any]) -> Callable[..., Any]:
    def result(attrs: Attrs, x: Turned) -> Turned:
        is_last = x.axis == x.array.ndim - 1
        array = nn.of_the_first(rule, x.array, x.count) if is_last else rule(attrs, x.array)
        return Turned(array, x.count, x.axis)

    return result


def _reduced(op: str, neutral: Callable[[Any], Any]) -> Callable[..., Any]:
    def result(attrs: Attrs, x: Turned, axes: Any) -> Any:
        along = reductions.axes_of(axes, x.array.ndim)
        if x.axis in along:
            return reductions.RULES[op].apply(attrs, masked(x.array, x.count, neutral(x.array.dtype), x.axis), axes)
        gone = 0 if attrs["keep_dims"] else sum(axis < x.axis for axis in along)
        return of(reductions.RULES[op].apply(attrs, x.array, axes), x.count, x.axis - gone)

    return result


def _mean(attrs: Attrs, x: Turned, axes: Any) -> Any:
    along = reductions.axes_of(axes, x.array.ndim)
    if x.axis not in along:
        return _reduced("Mean", lambda dtype: 0)(attrs, x, axes)
    others = int(np.prod([x.array.shape[axis] for axis in along if axis != x.axis], dtype=np.int64))
    number = x.count * np.int32(others)
    return reductions.mean_of(masked(x.array, x.count, 0, x.axis), along, attrs["keep_dims"], number)


def _broadcast(attrs: Attrs, x: Turned, shape: Any) -> Turned:
    parts = sizes.sizes_of(shape)
    size = parts[x.axis] if len(parts) == x.array.ndim else None
    if getattr(size, "count", None) is not x.count:
        raise Unsupported("it gives a dimension that depends on data another size")
    room = [x.array.shape[at] if at == x.axis else number for at, number in enumerate(parts)]
    return Turned(jnp.broadcast_to(x.array, room), x.count, x.axis)


def _squeezed(attrs: Attrs, x: Turned) -> Any:
    shape = x.array.shape
    dims = {axis % x.array.ndim for axis in attrs["squeeze_dims"]}
    gone = dims or {axis for axis, size in enumerate(shape) if size == 1 and axis != x.axis}
    if x.axis in gone:
        raise Unsupported("it takes the dimension of rows whose number depends on data away")
    return of(jnp.squeeze(x.array, tuple(sorted(gone))), x.count, x.axis - sum(axis < x.axis for axis in gone))


def _gathered(attrs: Attrs, x: Any, indices: Any, axis: Any) -> Any:
    """GatherV2 along what is counted."""
    if not isinstance(x, Turned) or whole(axis) % x.array.ndim != x.axis or attrs.get("batch_dims", 0):
        raise Unsupported("it takes parts of a tensor of which %s" % WHY.replace("its first", "these"))
    if isinstance(indices, Turned):
        raise Unsupported("it takes a tensor of which %s" % WHY.replace("its", "the"))
    return indexing.gather_rows(attrs, x.array, indices, axis)


def _bias_gradient(attrs: Attrs, x: Turned) -> Any:
    return nn.bias_add_grad(attrs, masked(x.array, x.count, 0, x.axis))


HANDLERS: dict[str, Callable[..., Any]] = {
    "Shape": sizes.shape_of, "ShapeN": sizes.shape_of, "Size": sizes.size_of, "Transpose": _transposed,
    "BroadcastTo": _broadcast, "GatherV2": _gathered, "Squeeze": _squeezed, "BiasAddGrad": _bias_gradient,
    "MatMul": products.RULES["MatMul"].rows,
    "Softmax": _normalized(nn.softmax), "LogSoftmax": _normalized(nn.log_softmax),
    "Sum": _reduced("Sum", lambda dtype: 0), "Max": _reduced("Max", reductions.least),
    "Min": _reduced("Min", reductions.most), "Mean": _mean,
}  # fmt: skip
