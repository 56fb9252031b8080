"""Static shape inference, enough to spot Sums that reduce only size-1 axes.

The gradient of x + y sums over the axes along which one of them was broadcast. If shapes are not static, TensorFlow
keeps that Sum even where both have the same shape, and Sum is black-listed. Here dimensions are numbers or symbols, and
equal symbols stand for equal numbers. An unknown dimension is a symbol of its own; an unknown shape is None.

    x: (batch, 256)     h = Relu(MatMul(x, w)): (batch, 256)     x + h: nothing is broadcast
"""

from typing import Any, Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

from ..graph.facts import Facts
from ..graph.graph_view import GraphView, Port
from . import contents
from .properties import Asker, Inference, Rule, Tables, at
from .properties import Number as Dim

Shape = Optional[Tuple[Dim, ...]]
INTEGERS = (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)
LONGEST = 256  # entries of the longest vector whose value is inferred: shapes and axes are short


class Shapes(Inference, Facts):
    """The shapes of a graph's tensors and the values of its integer vectors."""

    def __init__(self, view: GraphView, protos: Any, tables: Optional[Tables] = None) -> None:
        """As `Inference`."""
        super().__init__(view, protos, TABLES if tables is None else tables)

    def sums_nothing(self, position: int) -> bool:
        """Whether the Sum at a position, with axes from BroadcastGradientArgs, reduces only size-1 axes."""
        axes = self.nodes[position].inputs[1]
        source = self.nodes[axes.node]
        if source.op != "BroadcastGradientArgs":
            return False
        own, other = (self.ask("value", source.inputs[number]) for number in (axes.port, 1 - axes.port))
        if own is None or other is None or len(own) < len(other):
            return False
        return all(b in (1, a) for a, b in zip(reversed(own), reversed(other)))

    def shape(self, port: Port) -> Shape:
        """The shape of an output."""
        return self.ask("shape", port)

    def integers(self, port: Port) -> Optional[Tuple[int, ...]]:
        """The value of an output that is a vector of integers, or one integer."""
        value = self.ask("value", port)
        return value if value is not None and all(isinstance(dim, int) for dim in value) else None


def _same(a: Asker) -> Shape:
    return a.shape(0)


def _placeholder(a: Asker) -> Shape:
    return _declared(a, a.attr["shape"].shape)


def _placeholder_with_default(a: Asker) -> Shape:
    shape = a.attr["shape"].shape
    return () if not shape.dim and not shape.unknown_rank else _declared(a, shape)


def _component(a: Asker) -> Shape:
    return _declared(a, at(a.attr["output_shapes"].list.shape, a.port.port))


def _declared(a: Asker, shape: Any) -> Shape:
    if not shape.dim:  # a scalar, or in old graphs any shape
        return None
    return tuple(dim.size if dim.size >= 0 else a.symbol(axis) for axis, dim in enumerate(shape.dim))


def _variable(a: Asker) -> Shape:
    """Known only if fully static: an unknown dimension may differ at each read."""
    given = a.attr["shape"]
    dims = [dim.size for dim in given.shape.dim]
    is_static = given.HasField("shape") and not given.shape.unknown_rank and min(dims, default=0) >= 0
    return tuple(dims) if is_static else None


def _constant_shape(a: Asker) -> Shape:
    return tuple(dim.size for dim in a.attr["value"].tensor.tensor_shape.dim)


def _broadcast(a: Asker) -> Shape:
    whole = a.shape(0)
    for number in range(1, a.inputs):
        other = a.shape(number)
        rank = max(len(whole), len(other))
        pairs = zip((1,) * (rank - len(whole)) + whole, (1,) * (rank - len(other)) + other)
        whole = tuple(_broadcast_dim(a, axis, p, q) for axis, (p, q) in enumerate(pairs))
    return whole


def _broadcast_dim(a: Asker, axis: int, p: Dim, q: Dim) -> Dim:
    if p == q or q == 1:
        return p
    if p == 1:
        return q
    numbers = [dim for dim in (p, q) if isinstance(dim, int)]
    return numbers[0] if numbers else a.symbol(axis)


def _matmul(a: Asker) -> Shape:
    x, y = a.shape(0), a.shape(1)
    if len(x) != 2 or len(y) != 2:
        return None
    return x[1] if a.attr["transpose_a"].b else x[0], y[0] if a.attr["transpose_b"].b else y[1]


def _batch_matmul(a: Asker) -> Shape:
    x, y = a.shape(0), a.shape(1)
    if len(x) != len(y) or x[:-2] != y[:-2] or len(x) < 2:
        return None
    return (*x[:-2], x[-1] if a.attr["adj_x"].b else x[-2], y[-2] if a.attr["adj_y"].b else y[-1])


def _reshape(a: Asker) -> Shape:
    to = a.value(1)
    free = [axis for axis, dim in enumerate(to) if dim == -1]
    if not free:
        return to
    if len(free) > 1:
        return None
    dim = _quotient(a.shape(0), [d for d in to if d != -1])
    return (*to[: free[0]], a.symbol(free[0]) if dim is None else dim, *to[free[0] + 1 :])


def _quotient(whole: Tuple[Dim, ...], parts: List[Dim]) -> Optional[Dim]:
    """The product of `whole` divided by that of `parts`, or None."""
    symbols = [dim for dim in whole if not isinstance(dim, int)]
    number = _product([dim for dim in whole if isinstance(dim, int)])
    for part in parts:
        if isinstance(part, int):
            if part == 0 or number % part:
                return None
            number //= part
        elif part in symbols:
            symbols.remove(part)
        else:
            return None
    if not symbols:
        return number
    return symbols[0] if len(symbols) == 1 and number == 1 else ("product", number, tuple(sorted(map(repr, symbols))))


def _product(numbers: List[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


def _transpose(a: Asker) -> Shape:
    shape, order = a.shape(0), a.integers(1)
    return tuple(at(shape, axis) for axis in order) if len(order) == len(shape) else None


def _expand(a: Asker) -> Shape:
    shape, axis = a.shape(0), a.scalar(1)
    axis += len(shape) + 1 if axis < 0 else 0
    return (*shape[:axis], 1, *shape[axis:])


def _squeeze(a: Asker) -> Shape:
    shape = a.shape(0)
    axes = [axis % len(shape) for axis in a.attr["squeeze_dims"].list.i]
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes) if axes else None


def _reduce(a: Asker) -> Shape:
    shape, axes = a.shape(0), a.integers(1)
    axes = [axis % len(shape) for axis in axes] if shape else []
    kept = a.attr["keep_dims"].b
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if kept or axis not in axes)


def _gather(a: Asker) -> Shape:
    from_first = a.inputs < 3 or (a.integers(2) == [0] and not a.attr["batch_dims"].i)
    return (*a.shape(1), *a.shape(0)[1:]) if from_first else None


def _concatenated(a: Asker) -> Shape:
    parts, axis = [a.shape(number) for number in range(a.inputs - 1)], a.scalar(a.inputs - 1)
    rank = len(parts[0])
    whole = [next((dim for dim in dims if isinstance(dim, int)), dims[0]) for dims in zip(*parts)]  # all equal
    along = [at(part, axis) for part in parts]
    whole[axis] = sum(along) if all(isinstance(dim, int) for dim in along) else a.symbol(axis % rank)
    return tuple(whole)


def _split(a: Asker) -> Shape:
    axis, shape, count = a.scalar(0), a.shape(1), a.attr["num_split"].i
    dim = at(shape, axis)
    part = dim // count if isinstance(dim, int) else a.symbol(axis % len(shape))
    return (*shape[:axis], part, *shape[axis % len(shape) + 1 :])


def _resource_gather(a: Asker) -> Shape:
    return None if a.attr["batch_dims"].i else (*a.shape(1), *a.shape(0)[1:])


def _second(a: Asker) -> Shape:
    return a.shape(1)


def _filled(a: Asker) -> Shape:
    return a.value(0)


def _integers(a: Asker) -> Shape:
    tensor = a.attr["value"].tensor
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    if len(sizes) > 1 or sum(sizes) > LONGEST or tensor.dtype not in INTEGERS:
        return None
    return tuple(int(number) for number in tf.make_ndarray(tensor).reshape(-1))


def _range(a: Asker) -> Shape:
    start, limit, step = a.scalar(0), a.scalar(1), a.scalar(2)
    numbers = range(start, limit, step) if step else ()
    return tuple(numbers) if len(numbers) <= LONGEST else None


def _shape_n(a: Asker) -> Shape:
    return a.shape(a.port.port)


def _pack(a: Asker) -> Shape:
    return tuple(a.element(number) for number in range(a.inputs))


def _concat(a: Asker) -> Shape:
    return tuple(dim for number in range(a.inputs - 1) for dim in a.value(number))


def _slice(a: Asker) -> Shape:
    """One element or a slice of a vector; a masked bound is an omitted bound of a Python slice."""
    vector, begin, end, step = a.value(0), a.scalar(1), a.scalar(2), a.scalar(3)
    if a.attr["new_axis_mask"].i or a.attr["ellipsis_mask"].i or not step:
        return None
    if a.attr["shrink_axis_mask"].i:
        return (at(vector, begin),)
    masks = a.attr["begin_mask"].i, a.attr["end_mask"].i
    return vector[None if masks[0] else begin : None if masks[1] else end : step]


def _passed(a: Asker) -> Shape:
    return a.value(0)


def _expanded(a: Asker) -> Shape:
    value = a.value(0)
    return value if len(value) == 1 else None


_SAME = (
    "Identity Relu Relu6 Elu Selu Softplus Softsign Sigmoid Tanh Exp Log Log1p Sqrt Rsqrt Square Neg Abs Erf Sin Cos "
    "Reciprocal Floor Sign Cast BiasAdd Softmax LogSoftmax ReluGrad Relu6Grad TanhGrad SigmoidGrad SqrtGrad RsqrtGrad "
    "EluGrad AddN ZerosLike OnesLike StopGradient Snapshot LeakyRelu LeakyReluGrad PreventGradient CheckNumerics "
    "Enter Exit NextIteration Switch _SwitchN"
)
_BROADCAST = (
    "Add AddV2 Sub Mul RealDiv Div DivNoNan Maximum Minimum Pow SquaredDifference GreaterEqual Greater Less LessEqual "
    "Equal NotEqual LogicalAnd LogicalOr"
)
SHAPES: Dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], _batch_matmul),
    **dict.fromkeys(["Sum", "Mean", "Max", "Min", "Prod"], _reduce),
    **dict.fromkeys(["RandomUniform", "RandomStandardNormal", "TruncatedNormal", "Fill"], _filled),
    **dict.fromkeys(["VariableV2", "VarHandleOp"], _variable),
    "Placeholder": _placeholder,
    "PlaceholderWithDefault": _placeholder_with_default,
    "IteratorGetNext": _component,
    "ReadVariableOp": lambda a: a.shape(0),
    "Const": _constant_shape,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "GatherV2": _gather,
    "Select": _second,
    "SelectV2": _broadcast,
    "ResourceGather": _resource_gather,
    "ConcatV2": _concatenated,
    "Split": _split,
    "Merge": lambda a: a.common("shape", range(a.inputs)) if a.port.port == 0 else (),
    **contents.SHAPES,
}
VALUES: Dict[str, Rule] = {
    "Const": _integers,
    "Shape": _same,
    "ShapeN": _shape_n,
    "Pack": _pack,
    "ConcatV2": _concat,
    "Range": _range,
    "StridedSlice": _slice,
    **dict.fromkeys(["Identity", "Cast", "Enter", "Exit", "Switch", "_SwitchN"], _passed),
    "ExpandDims": _expanded,
    **contents.VALUES,
}
TABLES = {"shape": SHAPES, "value": VALUES, "element": contents.ELEMENTS, "content": contents.CONTENTS}
