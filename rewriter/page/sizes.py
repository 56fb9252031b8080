"""How much work the nodes of a graph are: operations and the sizes of their outputs, where shapes are known.

TensorFlow's own shape inference tells the shapes. A dimension that the graph leaves open counts as 1, so the figures
of a graph with an open batch are those of one example. What runs in a loop counts once.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence, Tuple

import tensorflow.compat.v1 as tf

from ..tables.op_table import Entry

Shape = Tuple[int, ...]


class Size(NamedTuple):
    """What a node computes: `operations` (a multiplication and an addition are two), and elements by output."""

    operations: int
    elements: tuple[int, ...]


def of(graph_def: Any, entries: Mapping[str, Entry]) -> dict[str, Size]:
    """Returns the sizes of a graph's nodes by name; without the nodes of a graph that TensorFlow cannot import.

    Args:
        graph_def: tf.compat.v1.GraphDef without calls of functions, as `inlining.inline` makes it.
        entries: those of the op table: ops that only move data count no operations.
    """
    graph = _imported(graph_def)
    if graph is None:
        return {}
    shapes = {op.name: [_closed(tensor.shape) for tensor in op.outputs] for op in graph.get_operations()}
    sizes_of = {}
    for op in graph.get_operations():
        written = [] if op.type in ALIASES else shapes[op.name]
        elements = tuple(0 if shape is None else _product(shape) for shape in written)
        inputs = [shapes[tensor.op.name][tensor.value_index] for tensor in op.inputs]
        entry = entries.get(op.type)
        counted = entry is not None and entry.role == "computes"
        sizes_of[op.name] = Size(_operations(op, inputs, shapes[op.name]) if counted else 0, elements)
    return sizes_of


def _imported(graph_def: Any) -> Any | None:
    """A tf.Graph with the open sizes of what is fed closed to 1, or left open where the graph contradicts that."""
    plain = _without_colocation(graph_def)
    for graph_part in (_closed_feeds(plain), plain):
        graph = tf.Graph()
        try:
            with graph.as_default():
                tf.import_graph_def(graph_part, name="")
        except ValueError:
            continue
        return graph
    return None


def _without_colocation(graph_def: Any) -> Any:
    """A copy whose nodes may stand anywhere: TensorFlow's optimizers remove nodes that others are colocated with."""
    plain = tf.GraphDef()
    plain.CopyFrom(graph_def)
    for node in plain.node:
        node.attr.pop("_class", None)
    return plain


def _closed_feeds(graph_def: Any) -> Any:
    closed = tf.GraphDef()
    closed.CopyFrom(graph_def)
    for node in closed.node:
        shapes = []
        if node.op in ("Placeholder", "PlaceholderWithDefault"):
            shapes = [node.attr["shape"].shape]
        elif node.op == "IteratorGetNext":
            shapes = node.attr["output_shapes"].list.shape
        for dim in (dim for shape in shapes for dim in shape.dim):
            dim.size = max(1, dim.size)
    return closed


def _closed(shape: Any) -> Shape | None:
    return None if shape.rank is None else tuple(1 if size is None else int(size) for size in shape.as_list())


def _operations(op: Any, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    product = PRODUCTS.get(op.type)
    try:
        if product is not None:
            return 2 * product(op, inputs, outputs)
        largest = inputs[:1] if op.type in REDUCTIONS else outputs[:1]
        return sum(_product(shape) for shape in largest if shape is not None)
    except (TypeError, IndexError, ValueError):  # a shape that is not known
        return 0


def _product(numbers: Iterable[int]) -> int:
    return functools.reduce(operator.mul, numbers, 1)


Product = Callable[[Any, Sequence[Any], Sequence[Any]], int]


def _matmul(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return _product(outputs[0]) * int(inputs[0][-2 if transposed else -1])


def _forward(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(outputs[0]) * _product(inputs[1][:-1])


def _to_input(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(inputs[2]) * _product(inputs[1][:-1])


def _to_filter(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(inputs[2]) * _product(outputs[0][:-1])


def _depthwise(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(outputs[0]) * _product(inputs[1][:2])


def _depthwise_to_input(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(inputs[2]) * _product(inputs[1][:2])


def _depthwise_to_filter(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return _product(inputs[2]) * _product(outputs[0][:2])


def _einsum(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """One multiplication for each combination of the labels; an ellipsis stands for axes that are not counted."""
    terms = op.get_attr("equation").decode().replace(" ", "").partition("->")[0].split(",")
    sizes = {label: size for term, shape in zip(terms, inputs) for label, size in zip(term, shape) if label != "."}
    return _product(sizes.values())


# ops whose result is their input's memory, or the memory of what is there before the step
ALIASES = (
    "Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient", "Snapshot", "Const",
    "VariableV2", "Variable", "VarHandleOp", "ReadVariableOp", "Switch", "Merge", "Enter", "Exit", "NextIteration",
)  # fmt: skip
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L2Loss")
PRODUCTS: dict[str, Product] = {
    **dict.fromkeys(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], _matmul),
    **dict.fromkeys(["Conv2D", "Conv3D"], _forward),
    **dict.fromkeys(["Conv2DBackpropInput", "Conv3DBackpropInputV2"], _to_input),
    **dict.fromkeys(["Conv2DBackpropFilter", "Conv3DBackpropFilterV2"], _to_filter),
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_to_input,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_to_filter,
    "Einsum": _einsum,
}
