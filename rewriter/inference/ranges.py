"""Infers ranges of values statically, from constants and from ops with bounded results.

A range is (least, most) and sound: no element lies outside it. Variables and feeds have none.
"""

from typing import Any, Dict, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.graph_view import GraphView, Port
from ..tables.dtypes import LIMITS
from .properties import Answer, Asker, Rule, Unknown, at
from .shapes import TABLES, Shapes

Range = Tuple[float, float]


class Ranges(Shapes):
    """The ranges of a graph's tensors, and the shapes they depend on."""

    def __init__(self, view: GraphView, protos: Any) -> None:
        """As `Inference`."""
        super().__init__(view, protos, {**TABLES, "range": RANGES})

    def range(self, port: Port) -> Optional[Range]:
        """The range of an output, or None."""
        limits = self.ask("range", port)
        return None if limits is None else (float(limits[0]), float(limits[1]))

    def overflows(self, port: Port, dtype: int) -> bool:
        """Whether an output is a constant with finite values that a low dtype rounds to infinity."""
        with np.errstate(all="ignore"):
            value = folding.value(self._view, port, lambda p: tf.make_ndarray(self._protos[p].attr["value"].tensor))
        return bool((np.isfinite(value) & (np.abs(value) >= LIMITS[dtype].infinite_from)).any())


def _range(a: Asker, number: int) -> Range:
    least, most = a.get("range", number)
    return least, most


def _union(a: Asker, numbers: Any) -> Answer:
    limits = [_range(a, number) for number in numbers]
    return min(least for least, _ in limits), max(most for _, most in limits)


def _constant(a: Asker) -> Answer:
    values = tf.make_ndarray(a.attr["value"].tensor)
    if values.dtype.kind not in "fiub" or not values.size or not np.isfinite(values).all():
        return None
    return float(values.min()), float(values.max())


def _sequence(a: Asker) -> Answer:
    """The op Range: numbers from a start to a limit."""
    ends = [_range(a, 0), _range(a, 1)]
    return min(least for least, _ in ends), max(most for _, most in ends)


def _products(one: Range, other: Range) -> Range:
    products = [x * y for x in one for y in other]
    return min(products), max(products)


def _multiplied(a: Asker) -> Answer:
    if a.same(0, 1):
        return _squared(a)
    return _products(_range(a, 0), _range(a, 1))


def _squared(a: Asker) -> Answer:
    least, most = _range(a, 0)
    squares = least * least, most * most
    return 0.0 if least <= 0 <= most else min(squares), max(squares)


def _divided(a: Asker) -> Answer:
    least, most = _range(a, 1)
    return None if least <= 0 <= most else _products(_range(a, 0), (1 / most, 1 / least))


def _added(a: Asker) -> Answer:
    limits = [_range(a, number) for number in range(a.inputs)]
    return sum(least for least, _ in limits), sum(most for _, most in limits)


def _subtracted(a: Asker) -> Answer:
    (least, most), (other_least, other_most) = _range(a, 0), _range(a, 1)
    return least - other_most, most - other_least


def _matmul(a: Asker) -> Answer:
    least, most = _products(_range(a, 0), _range(a, 1))
    count = _number(at(a.shape(1), 1 if a.attr["transpose_b"].b else 0))
    return least * count, most * count


def _batch_matmul(a: Asker) -> Answer:
    least, most = _products(_range(a, 0), _range(a, 1))
    count = _number(at(a.shape(1), -1 if a.attr["adj_y"].b else -2))
    return least * count, most * count


def _convolved(a: Asker) -> Answer:
    least, most = _products(_range(a, 0), _range(a, 1))
    count = 1
    for dim in a.shape(1)[:-1]:
        count *= _number(dim)
    return min(least * count, 0.0), max(most * count, 0.0)  # padding adds zeros


def _reduced(a: Asker) -> Answer:
    count = 1
    least, most = _range(a, 0)
    shape = a.shape(0)
    for axis in a.integers(1):
        count *= _number(at(shape, axis))
    return least * count, most * count


def _number(dim: Any) -> int:
    if not isinstance(dim, int):
        raise Unknown
    return dim


def _between(least: float, most: float) -> Rule:
    return lambda a: (least, most)


def _monotonic(function: Any) -> Rule:
    """The rule of a monotonically increasing function."""

    def rule(a: Asker) -> Answer:
        least, most = _range(a, 0)
        with np.errstate(over="ignore"):
            return float(function(least)), float(function(most))

    return rule


_MOVES = (
    "Identity Reshape Transpose Squeeze ExpandDims StopGradient Cast Tile Slice StridedSlice Gather GatherV2 MaxPool "
    "AvgPool Max Min Mean BroadcastTo Reverse ReverseV2 Snapshot PreventGradient CheckNumerics Enter Exit"
)
RANGES: Dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), lambda a: _range(a, 0)),
    **dict.fromkeys(["Add", "AddV2", "AddN", "BiasAdd"], _added),
    **dict.fromkeys(["Sigmoid", "Softmax", "RandomUniform"], _between(0.0, 1.0)),
    **dict.fromkeys(["Tanh", "Erf", "Sin", "Cos", "Sign", "Softsign"], _between(-1.0, 1.0)),
    **dict.fromkeys(["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], _batch_matmul),
    **dict.fromkeys(["Maximum", "Minimum", "Pack"], lambda a: _union(a, range(a.inputs))),
    **dict.fromkeys(["Select", "SelectV2"], lambda a: _union(a, (1, 2))),
    "ConcatV2": lambda a: _union(a, range(a.inputs - 1)),
    "OneHot": lambda a: _union(a, (2, 3)),
    "Const": _constant,
    "Range": _sequence,
    "Fill": lambda a: _range(a, 1),
    "Mul": _multiplied,
    "Square": _squared,
    "RealDiv": _divided,
    "Sub": _subtracted,
    "MatMul": _matmul,
    "Conv2D": _convolved,
    "Sum": _reduced,
    "Neg": lambda a: (-_range(a, 0)[1], -_range(a, 0)[0]),
    "Abs": lambda a: (0.0, max(abs(end) for end in _range(a, 0))),
    "Relu": _monotonic(lambda x: max(x, 0.0)),
    "Relu6": _between(0.0, 6.0),
    "Exp": _monotonic(np.exp),
    "Sqrt": _monotonic(np.sqrt),
}
