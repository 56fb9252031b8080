"""Rows whichever of their dimensions is counted: of Rows the first, of Turned another, as `tf.transpose(rows)` has it.

What computes each element by itself takes both, as do reductions, softmax, and what moves dimensions. A softmax or sum
over the counted dimension leaves out what is not there.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence, Union

import jax.numpy as jnp
import numpy as np

from npu_shim.step import sizes
from npu_shim.step.masks import cleared, common, repeated
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules import arrays, indexing, nn, products, reductions
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, Turned, ints, whole

Counted = Union[Rows, Turned]
Handler = Callable[..., Any]
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
    """What a rule gives that takes rows each: what is counted stands in one place from the end in all values."""
    counted = [value for value in values if isinstance(value, (Rows, Turned))]
    (place, *others) = {value.array.ndim - value.axis for value in counted}
    plain = [value.shape for value in values if not isinstance(value, (Rows, Turned))]
    if others or any(len(shape) >= place and shape[-place] != 1 for shape in plain):
        raise Unsupported("it joins a dimension that depends on data with another one")
    held, count = alike(counted)
    given = iter(held)
    result = row.apply(attrs, *[next(given) if isinstance(v, (Rows, Turned)) else v for v in values])
    axis = max(*(value.array.ndim for value in counted), *map(len, plain), place) - place
    if type(result) is not tuple:
        return of(result, count, axis)
    if axis:
        raise Unsupported("it gives several tensors, and %s" % WHY)
    return tuple(Rows(part, count) for part in result)


def alike(values: Sequence[Counted]) -> tuple[list[Any], Any]:
    """(Arrays with equally many elements along what is counted, their number): a single one goes with each other."""
    most = max(value.array.shape[value.axis] for value in values)
    held = [_with_room(value, most) for value in values]
    counts = [value.count for value in values]
    if all(count is counts[0] for count in counts):
        return held, counts[0]
    return [repeated(array, value.count, value.axis) for array, value in zip(held, values)], common(counts)


def _with_room(x: Counted, most: int) -> Any:
    more = most - x.array.shape[x.axis]
    return jnp.pad(x.array, [(0, more if at == x.axis else 0) for at in range(x.array.ndim)]) if more else x.array


# -- dimensions --------------------------------------------------------------------------------------------------------


def _transposed(attrs: Attrs, x: Counted, permutation: Any) -> Any:
    return of(jnp.transpose(x.array, ints(permutation)), x.count, ints(permutation).index(x.axis))


def _expanded(attrs: Attrs, x: Counted, axis: Any) -> Any:
    at = whole(axis) % (x.array.ndim + 1)
    return of(jnp.expand_dims(x.array, at), x.count, x.axis + (at <= x.axis))


def _squeezed(attrs: Attrs, x: Counted) -> Any:
    shape = x.array.shape
    dims = {axis % x.array.ndim for axis in attrs["squeeze_dims"]}
    gone = dims or {axis for axis, size in enumerate(shape) if size == 1 and axis != x.axis}
    if x.axis in gone:
        raise Unsupported("it takes the dimension of rows whose number depends on data away")
    return of(jnp.squeeze(x.array, tuple(sorted(gone))), x.count, x.axis - sum(axis < x.axis for axis in gone))


def _reversed(attrs: Attrs, x: Counted, axes: Any) -> Any:
    """The last element that there is comes first."""
    along = [axis % x.array.ndim for axis in ints(axes)] if np.size(axes) else []
    array = jnp.flip(x.array, along)
    if x.axis in along:  # what is not there comes first now
        array = jnp.roll(array, x.count - np.int32(array.shape[x.axis]), x.axis)
    return of(array, x.count, x.axis)


def _apart(rule: Handler, number: int) -> Handler:
    """Split, SplitV and Unpack of other dimensions.

    Args:
        rule: of tensors.
        number: of the input that says the axis, -1 for an attribute.
    """

    def parts(attrs: Attrs, *values: Any) -> Any:
        (x,) = (value for value in values if isinstance(value, (Rows, Turned)))
        given = [value.array if value is x else value for value in values]
        along = (attrs["axis"] if number < 0 else whole(given[number])) % x.array.ndim
        if along == x.axis:
            raise Unsupported("it takes rows whose number depends on data apart")
        result = rule(attrs, *given)
        axis = x.axis - (number < 0 and along < x.axis)
        return tuple(of(part, x.count, axis) for part in result) if type(result) is tuple else of(result, x.count, axis)

    return parts


# -- reductions --------------------------------------------------------------------------------------------------------


def _reduced(op: str, neutral: Callable[[Any], Any]) -> Handler:
    rule = reductions.RULES[op].apply

    def result(attrs: Attrs, x: Counted, axes: Any) -> Any:
        along = reductions.axes_of(axes, x.array.ndim)
        if x.axis in along:
            return rule(attrs, cleared(x, neutral(x.array.dtype)), axes)
        gone = 0 if attrs["keep_dims"] else sum(axis < x.axis for axis in along)
        return of(rule(attrs, x.array, axes), x.count, x.axis - gone)

    return result


def _mean(attrs: Attrs, x: Counted, axes: Any) -> Any:
    """Mean: of the elements that there are."""
    along = reductions.axes_of(axes, x.array.ndim)
    if x.axis not in along:
        return _reduced("Mean", lambda dtype: 0)(attrs, x, axes)
    others = int(np.prod([x.array.shape[axis] for axis in along if axis != x.axis], dtype=np.int64))
    return reductions.mean_of(cleared(x, 0), along, attrs["keep_dims"], x.count * np.int32(others))


def _extreme_at(op: str, worst: Callable[[Any], Any]) -> Handler:
    """ArgMax and ArgMin."""
    rule = reductions.RULES[op].apply

    def place(attrs: Attrs, x: Counted, axis: Any) -> Any:
        at = whole(axis) % x.array.ndim
        if at == x.axis:
            return rule(attrs, cleared(x, worst(x.array.dtype)), axis)
        return of(rule(attrs, x.array, axis), x.count, x.axis - (at < x.axis))

    return place


def _cumulative(op: str, neutral: int) -> Handler:
    """Cumsum and Cumprod: what stands behind the last element changes nothing."""
    rule = reductions.RULES[op].apply
    return lambda attrs, x, axis: of(rule(attrs, cleared(x, neutral), axis), x.count, x.axis)


def _normalized(rule: Handler) -> Handler:
    """Softmax and LogSoftmax."""

    def result(attrs: Attrs, x: Counted) -> Any:
        is_last = x.axis == x.array.ndim - 1
        return of(nn.of_the_first(rule, x.array, x.count) if is_last else rule(attrs, x.array), x.count, x.axis)

    return result


def _bias_gradient(attrs: Attrs, x: Counted) -> Any:
    if x.axis == nn.channel(attrs, x.array.ndim):
        raise Unsupported("how many channels there are depends on data")
    return nn.bias_add_grad(attrs, cleared(x, 0))


# -- of Turned alone ---------------------------------------------------------------------------------------------------


def _broadcast(attrs: Attrs, x: Turned, shape: Any) -> Turned:
    parts = sizes.sizes_of(shape)
    size = parts[x.axis] if len(parts) == x.array.ndim else None
    if getattr(size, "count", None) is not x.count:
        raise Unsupported("it gives a dimension that depends on data another size")
    room = [x.array.shape[at] if at == x.axis else number for at, number in enumerate(parts)]
    return Turned(jnp.broadcast_to(x.array, room), x.count, x.axis)


def _gathered(attrs: Attrs, x: Any, indices: Any, axis: Any) -> Any:
    """GatherV2 along what is counted."""
    if not isinstance(x, Turned) or whole(axis) % x.array.ndim != x.axis or attrs.get("batch_dims", 0):
        raise Unsupported("it takes parts of a tensor of which %s" % WHY.replace("its first", "these"))
    if isinstance(indices, Turned):
        raise Unsupported("it takes a tensor of which %s" % WHY.replace("its", "the"))
    return indexing.gather_rows(attrs, x.array, indices, axis)


ALONG: dict[str, Handler] = {
    "Shape": sizes.shape_of, "ShapeN": sizes.shape_of, "Size": sizes.size_of, "Transpose": _transposed,
    "ExpandDims": _expanded, "Squeeze": _squeezed, "ReverseV2": _reversed,
    "Split": _apart(arrays.split, 0), "SplitV": _apart(arrays.split_v, 2), "Unpack": _apart(arrays.unpack, -1),
    "Sum": _reduced("Sum", lambda dtype: 0), "Prod": _reduced("Prod", lambda dtype: 1), "Mean": _mean,
    "Max": _reduced("Max", reductions.least), "Min": _reduced("Min", reductions.most),
    "All": _reduced("All", lambda dtype: True), "Any": _reduced("Any", lambda dtype: False),
    "ArgMax": _extreme_at("ArgMax", reductions.least), "ArgMin": _extreme_at("ArgMin", reductions.most),
    "Cumsum": _cumulative("Cumsum", 0), "Cumprod": _cumulative("Cumprod", 1),
    "L2Loss": lambda attrs, x: reductions.l2_loss(attrs, cleared(x, 0)),
    "Softmax": _normalized(nn.softmax), "LogSoftmax": _normalized(nn.log_softmax), "BiasAddGrad": _bias_gradient,
}  # fmt: skip
HANDLERS: dict[str, Handler] = {
    **ALONG, "BroadcastTo": _broadcast, "GatherV2": _gathered, "MatMul": products.RULES["MatMul"].rows,
}  # fmt: skip
