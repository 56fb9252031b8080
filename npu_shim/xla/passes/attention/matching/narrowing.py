"""Biases without the dimensions along which constants alone make them large. No TensorFlow.

    mask = ones[b, s, 1] * mask[b, 1, t]                     BERT's: equal for all queries
    mask = matmul(ones[b, 1, s, 1], mask[b, 1, t, 1]^T)      ALBERT's

A kernel reads [b, 1, 1, t] for it, in place of [b, 1, s, t] once for each head.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from npu_shim.rewriter.ir.attributes import Tensor
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.xla.passes.attention.matching.contents import DTYPES, Contents
from npu_shim.xla.passes.attention.matching.contractions import BATCHED
from npu_shim.xla.passes.attention.matching.rounding import INTEGERS

ELEMENTWISE = frozenset([
    "Add", "AddV2", "Cast", "Div", "Identity", "Maximum", "Minimum", "Mul", "Neg", "RealDiv", "StopGradient", "Sub",
])  # fmt: skip
SCOPE = "/narrow"


class Narrowing:
    """The narrow forms of a graph's values.

    Args:
        contents: what is known of the graph's constants and shapes.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._shapes: dict[Value, tuple[int, ...]] = {}
        self._copies: dict[Value, Value] = {}

    def shape(self, value: Value) -> tuple[int, ...]:
        """The sizes of a value's narrow form; the value's shape is known."""
        if value not in self._shapes:
            whole = self._contents.shape(value)
            assert whole is not None
            narrowed = self._narrow(value.node, len(whole))
            self._shapes[value] = whole if narrowed is None else narrowed
        return self._shapes[value]

    def written(self, value: Value, graph: Graph) -> Value:
        """The narrow form of a value, as nodes of the graph; the value itself if it is as narrow as it can be."""
        if self.shape(value) == self._contents.shape(value):
            return value
        if value not in self._copies:
            self._copies[value] = self._copied(value.node, graph).value
        return self._copies[value]

    def _narrow(self, node: Node, rank: int) -> tuple[int, ...] | None:
        if self._contents.uniform(node) is not None:
            return (1,) * rank
        if any(self._contents.shape(value) is None for value in node.inputs):
            return None
        rule = RULES.get(node.op)
        return rule(self, node) if rule else None

    def _copied(self, node: Node, graph: Graph) -> Node:
        name = graph.free_name(node.name + SCOPE)
        number = self._contents.uniform(node)
        if number is not None:
            dims, dtype = self.shape(node.value), node.attrs[DTYPES.get(node.op, "T")]
            element = int(number) if repr(dtype) in INTEGERS else number
            attrs = {"dtype": dtype, "value": Tensor(dtype, dims, (element,))}
            return graph.add(name, "Const", attrs=attrs, origin=node)
        inputs = [self.written(value, graph) for value in node.inputs]
        return graph.add(name, node.op, inputs, attrs=dict(node.attrs.items()), device=node.device, origin=node)

    def broadcast(self, node: Node) -> tuple[int, ...]:
        """Of an elementwise op."""
        return tuple(np.broadcast(*(_empty(self.shape(value)) for value in node.inputs)).shape)

    def expanded(self, node: Node) -> tuple[int, ...] | None:
        """Of ExpandDims."""
        axis = self._contents.number(node.inputs[1])
        return None if axis is None else np.expand_dims(_empty(self.shape(node.inputs[0])), int(axis)).shape

    def repeated(self, node: Node) -> tuple[int, ...] | None:
        """Of a product of a column of ones and a row."""
        turned, other = node.attrs.get("adj_x", False), node.attrs.get("adj_y", False)
        x, y = (self._contents.shape(value) or () for value in node.inputs)
        if turned or x[-1] != 1 or self._contents.uniform(node.inputs[0].node) is None:
            return None
        narrow, columns = self.shape(node.inputs[1]), y[-2 if other else -1]
        return None if narrow != y else (*y[:-2], 1, columns)


def _empty(shape: tuple[int, ...]) -> Any:
    """An array of a shape that takes no memory."""
    return np.broadcast_to(0, shape)


RULES: dict[str, Callable[[Narrowing, Node], tuple[int, ...] | None]] = {
    **dict.fromkeys(ELEMENTWISE, Narrowing.broadcast),
    **dict.fromkeys(BATCHED, Narrowing.repeated),
    "ExpandDims": Narrowing.expanded,
}
