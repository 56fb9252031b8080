"""Rows whose number depends on data beside tensors of as many rows, as all those of a batch's graphs are."""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np

from npu_shim.step import rows, turned
from npu_shim.step.containers import rooms
from npu_shim.step.masks import common, repeated
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, ints, is_known, is_tensor, whole

# elementwise ops that do not broadcast, beside gradients of one input
ALIKE = frozenset(["Select", "AddN", "AccumulateNV2", "ApproximateEqual"])


def settled(scope: Any, node: Any, row: Rule, values: Sequence[Any]) -> Sequence[Any]:
    """Values in which rows that are as many as those of a tensor beside them are tensors of that many rows.

    Elementwise ops, sums of segments, and ConcatV2 behind the first dimension take equally many rows, as does MatMul
    that adds over them. That data says so is noted as what must hold, also where nothing but rows stands beside rows;
    of ops that broadcast, a single row goes with each of the tensor. A shape that is known says how many rows there
    are too.
    """
    if node.op == "Reshape":
        return _shaped(scope, node, *values)
    axes = _counted_axes(node, row, values)
    parts = values[: len(axes)]
    numbers = {part.shape[axis] for part, axis in zip(parts, axes) if is_tensor(part)}
    is_counted = all((isinstance(part, Rows) and axis == 0) or is_tensor(part) for part, axis in zip(parts, axes))
    may_be_one = row.rows == "each" and node.op not in ALIKE and not node.op.endswith("Grad")
    held = [part for part, axis in zip(parts, axes) if isinstance(part, Rows) and axis == 0]
    is_open = len(numbers) != 1 or not is_counted or (may_be_one and 1 in numbers)
    if is_open or any(part.array.shape[0] < number for part in held for number in numbers):
        require_as_many(scope, node, [part.count for part in held], may_be_one)
        return values
    (number,) = numbers
    result: list[Any] = []
    for part in parts:
        if isinstance(part, Rows):
            holds = part.count == np.int32(number)
            rooms.require_where(scope, node, holds | (part.count == np.int32(1)) if may_be_one else holds)
            part = (repeated(part.array, part.count) if may_be_one else part.array)[:number]
        result.append(part)
    return [*result, *values[len(parts) :]]


def require_as_many(scope: Any, node: Any, counts: Sequence[Any], may_be_one: bool) -> None:
    """Notes that numbers of rows are equal, or 1 where a single row goes with each of the others."""
    if all(count is counts[0] for count in counts):
        return
    number = common(counts) if may_be_one else counts[0]
    for count in counts:
        holds = count == number
        rooms.require_where(scope, node, holds | (count == np.int32(1)) if may_be_one else holds)


def _shaped(scope: Any, node: Any, x: Any, shape: Any) -> Sequence[Any]:
    dims = ints(shape) if isinstance(x, Rows) and is_known(shape) and np.size(shape) else (-1,)
    size, width = math.prod(dims), math.prod(x.array.shape[1:]) if isinstance(x, Rows) else 0
    if min(dims) < 0 or not width or size % width or size // width > x.array.shape[0]:
        return x, shape
    rooms.require_where(scope, node, x.count == np.int32(size // width))
    return x.array[: size // width], shape


def _counted_axes(node: Any, row: Rule, values: Sequence[Any]) -> Sequence[int]:
    """Of each of the first inputs, the dimension that must have one size in all of them; () of other ops."""
    ranks = [_rank(value) for value in values]
    if node.op in rows.SEGMENTS:
        return (0, 0) if min(ranks[:2]) else ()
    if node.op == "MatMul":
        return int(not node.attrs["transpose_a"]), int(node.attrs["transpose_b"])
    if node.op == "ConcatV2":
        return [0] * (len(values) - 1) if whole(values[-1]) % max(ranks) else ()
    return [0] * len(values) if row.rows == "each" and len({*ranks}) == 1 else ()


def _rank(value: Any) -> int:
    """The rank of rows or of a tensor, 0 for other values."""
    if isinstance(value, Rows):
        return int(value.array.ndim)
    return int(value.ndim) if is_tensor(value) else 0


def row_by_row(row: Rule, attrs: Attrs, values: Sequence[Any]) -> Any:
    """What a rule gives for values some of which are Rows; Unsupported if it does not take them."""
    if row.rows is None:
        raise Unsupported("its rule takes no tensor whose rows depend on data")
    return turned.elementwise(row, attrs, values) if row.rows == "each" else row.rows(attrs, *values)
