"""Static facts about a graph's tensors: dtypes, shapes, constants, and which indices are distinct."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import data, output_of, source_of
from npu_shim.xla.passes.shapes import static_shapes

UNIQUE = frozenset(["Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"])
UNIQUE_HERE = "_npu_shim_unique"  # attribute of a node that replaces a Unique
ROUTES = frozenset(["Identity", "Enter", "Switch"])  # of SAME_VALUES, those that also keep shape and dtype
LOOPED = frozenset(["Merge", "Exit", "NextIteration"])
SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank"])  # depend on their input's shape only
# keep the values of their first input, in another place or form
SAME_VALUES = frozenset(["Identity", "Enter", "Switch", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "Cast"])


class Facts:
    """The facts about one graph.

    Args:
        graph_def: tf.GraphDef with v1 control flow.
    """

    def __init__(self, graph_def: Any) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._graph = static_shapes.loopless(_with_defaults(graph_def))

    def tensor(self, text: str) -> Any:
        """Returns a tf.Tensor with the dtype and shape of a tensor of the graph, given in input notation."""
        return self._graph.as_graph_element(text if ":" in text else text + ":0")

    def value_of(self, node: Any, number: int) -> tuple[Any, Any]:
        """Returns (dtype, shape) of a node's input; for a handle, those of its variable."""
        given = self.tensor(node.input[number])
        if given.dtype != tf.resource:
            return given.dtype, given.shape
        dtype = tf.as_dtype(node.attr["T" if "T" in node.attr else "dtype"].type)
        return dtype, self.shape(node.input[number])

    def shape(self, text: str) -> Any:
        """Returns a tensor's shape; for a handle, that of its variable."""
        given = self.tensor(text)
        if given.dtype != tf.resource:
            return given.shape
        handle = self._origin(text)
        return tf.TensorShape(handle.attr["shape"].shape if "shape" in handle.attr else None)

    def dtype(self, node: Any, number: int) -> Any:
        """Returns the dtype of a node's input."""
        return self.tensor(node.input[number]).dtype

    def constant(self, text: str) -> np.ndarray | None:
        """Returns the value (np.ndarray) of a tensor that constants and shapes determine; None for others."""
        while self._nodes[source_of(text)].op in ROUTES:
            text = self._nodes[source_of(text)].input[0]
        if self._is_looped(text) or self.tensor(text).dtype in (tf.resource, tf.variant):
            return None
        value = tf.get_static_value(self.tensor(text))
        return tf_internals.constant_value(self.tensor(text)) if value is None else value

    def constants(self, node: Any) -> dict[int, np.ndarray]:
        """Returns input number -> value for a node's inputs with a known `constant`."""
        values = enumerate(self.constant(text) for text in data(node))
        return {number: value for number, value in values if value is not None}

    def _is_looped(self, text):
        """Whether a tensor's value may come from a loop, whose values the loopless graph lacks."""
        pending, seen = [text], set()
        while pending:
            node = self._nodes[source_of(pending.pop())]
            if node.op in LOOPED:
                return True
            if node.name not in seen and node.op not in SHAPES:
                seen.add(node.name)
                pending += data(node)
        return False

    def distinct(self, node: Any) -> frozenset[int]:
        """Returns the numbers of a node's inputs whose values are distinct integers."""
        return frozenset(number for number, text in enumerate(data(node)) if self.is_distinct(text))

    def is_distinct(self, text: str) -> bool:
        """Returns whether the values of a tensor are known to be distinct."""
        source = self._origin(text)
        if source.op in UNIQUE or UNIQUE_HERE in source.attr:
            return self._port(text) == 0
        values = self.constant(text)
        if values is None:
            return source.op == "Range"
        return values.dtype.kind == "i" and values.size == np.unique(values).size

    def _origin(self, text):
        """The node that computes a tensor's values."""
        node = self._nodes[source_of(text)]
        while node.op in SAME_VALUES:
            node = self._nodes[source_of(node.input[0])]
        return node

    def _port(self, text):
        """The output number of that node."""
        node = self._nodes[source_of(text)]
        while node.op in SAME_VALUES:
            text = node.input[0]
            node = self._nodes[source_of(text)]
        return output_of(text)[1]


def _with_defaults(graph_def):
    """The GraphDef with its unfed PlaceholderWithDefaults replaced by their defaults."""
    if not any(node.op == "PlaceholderWithDefault" for node in graph_def.node):
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        if node.op == "PlaceholderWithDefault":
            node.op = "Identity"
            node.attr["T"].type = node.attr["dtype"].type
            del node.attr["dtype"], node.attr["shape"]
    return copy
