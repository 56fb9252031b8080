"""Rows that an op names by known numbers, and which must be there: where there are fewer, a session ends with an error.

    rows[2], tf.gather(rows, [0, 2]), tf.nn.top_k(rows, 3)        there are three rows or more
    tf.argmax(rows, 0)                                            there is one

And `tf.squeeze(rows)`, which takes the dimension of a single row away, is not of one.

It is noted as `checks` are, so that the session runs the step and says what is wrong; where no session stands behind a
step, as `rooms` are.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from npu_shim.step import checks
from npu_shim.step.containers import rooms
from npu_shim.step.graph import Node
from npu_shim.step.rules.table import Attrs
from npu_shim.step.turned import Counted
from npu_shim.step.values import Rows, Turned, is_known, whole


def require(scope: Any, node: Node, values: Sequence[Any]) -> None:
    """Notes that there are as many rows as a node needs."""
    least = LEAST.get(node.op)
    if least is None or not isinstance(values[0], (Rows, Turned)) or not is_known(*values[1:3]):
        return
    number, count = least(node.attrs, *values), values[0].count
    if number:
        key = rooms.KEY if scope.run.told is None else checks.KEY
        rooms.require_where(scope, node, count >= np.int32(number) if number > 0 else count != np.int32(1), key)


def _gathered(attrs: Attrs, x: Counted, indices: Any, axis: Any = 0) -> int:
    is_counted = whole(axis) % x.array.ndim == x.axis and not attrs.get("batch_dims")
    return int(indices.max()) + 1 if is_counted and indices.size else 0


def _gathered_nd(attrs: Attrs, x: Rows, indices: Any) -> int:
    return int(indices[..., 0].max()) + 1 if indices.size else 0


def _element(attrs: Attrs, x: Rows, begin: Any, end: Any, strides: Any) -> int:
    """Of StridedSlice where it takes one element of the first dimension."""
    others = attrs["new_axis_mask"] | attrs["ellipsis_mask"]
    if not attrs["shrink_axis_mask"] & 1 or others & 1:
        return 0
    at = int(begin[0])
    return at + 1 if at >= 0 else -at


def _sliced(attrs: Attrs, x: Rows, begin: Any, size: Any) -> int:
    return int(begin[0]) + max(int(size[0]), 0)


def _best(attrs: Attrs, x: Rows, k: Any) -> int:
    return whole(k) if x.array.ndim == 1 else 0


def _extreme(attrs: Attrs, x: Counted, axis: Any) -> int:
    return int(whole(axis) % x.array.ndim == x.axis)


def _squeezed(attrs: Attrs, x: Counted) -> int:
    return 0 if attrs["squeeze_dims"] else -1


# how many rows an op needs of its first input, by its known inputs; -1: none, or more than one
LEAST: dict[str, Callable[..., int]] = {
    "Gather": _gathered, "GatherV2": _gathered, "GatherNd": _gathered_nd, "StridedSlice": _element, "Slice": _sliced,
    "TopKV2": _best, "ArgMax": _extreme, "ArgMin": _extreme, "Squeeze": _squeezed,
}  # fmt: skip
