"""Numbers that nodes compute from constants and shapes: scales, rates, axes, sizes. No TensorFlow.

    c:RealDiv(1.0, Sqrt(Cast(StridedSlice(Shape(q), -1))))

is 0.125 where q is [.., 64].
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import numpy as np

from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.attention.matching.rounding import held, rounded

DTYPES = {"Const": "dtype", "Cast": "DstT"}  # the attributes that say a result's dtype, where it is not T
LONGEST = 64  # elements: shapes and axes are short
LARGEST = 1 << 20  # elements of a constant that may be one number
DEEPEST = 16  # nodes from a constant to what is asked for
Shape = Optional[Tuple[int, ...]]


class Contents:
    """What is known of tensors before the graph runs.

    Args:
        shape: the sizes of a Value, None where one is open.
    """

    def __init__(self, shape: Callable[[Value], Shape]) -> None:
        self.shape = shape
        self._known: dict[Value, Any] = {}

    def array(self, value: Value, depth: int = DEEPEST) -> Any:
        """The elements of a value that is small and constant, None for another; floats as its dtype rounds them."""
        if value not in self._known:
            self._known[value] = None  # for a cycle
            self._known[value] = self._compute(value, depth) if depth else None
        return self._known[value]

    def number(self, value: Value) -> float | None:
        """The one element of a constant."""
        array = self.array(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def integers(self, value: Value) -> tuple[int, ...] | None:
        """The elements of a constant of integers, of any rank, in a row."""
        array = self.array(value)
        return tuple(map(int, array.reshape(-1))) if array is not None and array.dtype.kind == "i" else None

    def uniform(self, node: Node, depth: int = DEEPEST) -> float | None:
        """The number that all elements of a value are, of any size; None if they differ or it is no constant."""
        if node.op == "Const":
            numbers = set(node.attrs["value"].numbers() or ()) if node.attrs["value"].size <= LARGEST else ()
            return float(*numbers) if len(numbers) == 1 else None
        if node.op in LIKE:
            return LIKE[node.op]
        if node.op == "Fill":
            return self.number(node.inputs[1])
        if depth and node.op in REPEATS:
            number = self.uniform(node.inputs[0].node, depth - 1)
            return None if number is None else held(number, dtype_of(node))
        return self._computed(node, depth - 1) if depth and node.op in ARITHMETIC else None

    def _computed(self, node: Node, depth: int) -> float | None:
        """What arithmetic makes of values of one number each."""
        numbers = []
        for value in node.inputs:
            number = self.uniform(value.node, depth)
            if number is None:
                return None
            numbers.append(np.array(number))
        with np.errstate(all="ignore"):
            return held(float(RULES[node.op](node, 0, *numbers)), dtype_of(node))

    def _compute(self, value: Value, depth: int) -> Any:
        node = value.node
        if node.op == "Const":
            return _constant(node)
        if node.op in OF_SHAPES:
            shape = self.shape(node.inputs[value.index])  # ShapeN alone has several
            return None if shape is None else OF_SHAPES[node.op](shape)
        rule = RULES.get(node.op)
        if rule is None:
            return None
        arrays = [self.array(taken, depth - 1) for taken in node.inputs]
        if any(array is None for array in arrays):
            return None
        try:
            with np.errstate(all="ignore"):
                computed = np.asarray(rule(node, value.index, *arrays))
        except (ValueError, IndexError):  # what TensorFlow would refuse when it runs
            return None
        return rounded(computed, dtype_of(node)) if computed.size <= LONGEST else None


def dtype_of(node: Node) -> str:
    """The name of the dtype of a node's result, "" where no attribute says it."""
    dtype = node.attrs.get(DTYPES.get(node.op, "T"))
    return "" if dtype is None else repr(dtype)


def _constant(node: Node) -> Any:
    tensor = node.attrs["value"]
    numbers = tensor.numbers() if tensor.size <= LONGEST else None
    if numbers is None:
        return None
    return np.array(numbers, _kind(tensor.dtype)).reshape(tensor.dims)


def _kind(dtype: Any) -> Any:
    """The dtype in which elements of a dtype are computed with here."""
    name = repr(dtype)
    return np.float64 if "float" in name else np.bool_ if name == "bool" else np.int64


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that depends on the inputs alone."""
    return lambda node, index, *arrays: function(*arrays)


def _cast(node: Node, index: int, array: Any) -> Any:
    return array.astype(_kind(node.attrs["DstT"]))


def _slice(node: Node, index: int, array: Any, begin: Any, end: Any, strides: Any) -> Any:
    """Of a vector."""
    masks = {name: node.attrs.get(name, 0) for name in ("begin_mask", "end_mask", "shrink_axis_mask")}
    if array.ndim != 1 or node.attrs.get("new_axis_mask", 0) or node.attrs.get("ellipsis_mask", 0):
        raise ValueError
    if masks["shrink_axis_mask"]:
        return array[int(begin[0])]
    first, last = (None if masks[n + "_mask"] else int(v[0]) for n, v in (("begin", begin), ("end", end)))
    return array[first : last : int(strides[0])]


def _broadcast_axes(node: Node, index: int, *shapes: Any) -> Any:
    """The axes along which one of two shapes is broadcast, as BroadcastGradientArgs says them."""
    rank = max(map(len, shapes))
    own, other = ([1] * (rank - len(shape)) + [int(n) for n in shape] for shape in (shapes[index], shapes[1 - index]))
    missing = rank - len(shapes[index])
    return np.array([n for n in range(rank) if own[n] == 1 and (other[n] != 1 or n < missing)], np.int64)


OF_SHAPES: dict[str, Callable[..., Any]] = {
    "Shape": lambda shape: np.array(shape, np.int64),
    "ShapeN": lambda shape: np.array(shape, np.int64),
    "Size": lambda shape: np.array(int(np.prod(shape, dtype=np.int64))),
    "Rank": lambda shape: np.array(len(shape)),
}
RULES: dict[str, Callable[..., Any]] = {
    "Identity": _plain(lambda x: x),
    "Cast": _cast,
    "Neg": _plain(np.negative),
    "Sqrt": _plain(np.sqrt),
    "Rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    **dict.fromkeys(["Reciprocal", "Inv"], _plain(lambda x: 1 / x)),
    **dict.fromkeys(["Add", "AddV2"], _plain(np.add)),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Pow": _plain(np.power),
    **dict.fromkeys(["RealDiv", "Div"], _plain(lambda x, y: x / y if x.dtype.kind == "f" else x // y)),
    "FloorDiv": _plain(lambda x, y: x // y),
    "Maximum": _plain(np.maximum),
    "Prod": _plain(lambda x, axes: np.prod(x, axis=tuple(axes.reshape(-1)))),
    "Pack": _plain(lambda *parts: np.stack(parts)),
    "ConcatV2": _plain(lambda *parts: np.concatenate(parts[:-1], int(parts[-1]))),
    "ExpandDims": _plain(lambda x, axis: np.expand_dims(x, int(axis))),
    "Squeeze": _plain(np.squeeze),
    "Reshape": _plain(lambda x, shape: x.reshape(shape)),
    "Range": _plain(lambda first, last, step: np.arange(int(first), int(last), int(step))),
    "Fill": _plain(lambda shape, value: np.full(shape, value)),
    "StridedSlice": _slice,
    "BroadcastGradientArgs": _broadcast_axes,
}
SHAPE_OPS = frozenset(OF_SHAPES)
LIKE = {"OnesLike": 1.0, "ZerosLike": 0.0}
REPEATS = frozenset(["BroadcastTo", "Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "Tile"])
ARITHMETIC = frozenset(["Add", "AddV2", "Mul", "Neg", "Sub"])
