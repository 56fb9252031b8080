"""Static facts about a graph's tensors: dtypes, shapes, constants, and which indices are distinct."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.xla.passes.legalize import bodies
from npu_shim.xla.passes.legalize.bodies import Given
from npu_shim.xla.passes.shapes import static_shapes

UNIQUE = frozenset(["Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"])
UNIQUE_HERE = "_npu_shim_unique"  # attribute of a node that replaces a Unique
ROUTES = frozenset(["Identity", "Enter", "Switch"])  # of SAME_VALUES, those that also keep shape and dtype
LOOPED = frozenset(["Merge", "Exit", "NextIteration"])
SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank"])  # depend on their input's shape only
# keep the values of their first input, in another place or form
SAME_VALUES = frozenset(["Identity", "Enter", "Switch", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "Cast"])


class Facts:
    """The facts about a graph, or a function's body, as it is when they are made.

    Args:
        graph: has v1 control flow.
        given: of a body, what is known of each of its arguments.
    """

    def __init__(self, graph: Graph, given: Sequence[Given] = ()) -> None:
        self._given = dict(zip(graph.arguments, given))
        self._graph = inferred(bodies.as_graph_def(graph, given))

    def tensor(self, value: Value) -> Any:
        """Returns a tf.Tensor with the dtype and shape of a value."""
        return self._graph.as_graph_element("%s:%d" % (value.node.name, value.index))

    def value_of(self, node: Node, number: int) -> tuple[Any, Any]:
        """Returns (dtype, shape) of a node's input; for a handle, those of its variable."""
        tensor = self.tensor(node.inputs[number])
        if tensor.dtype != tf.resource:
            return tensor.dtype, tensor.shape
        dtype = node.attrs["T" if "T" in node.attrs else "dtype"]
        return tf.as_dtype(int(dtype)), self.shape(node.inputs[number])

    def shape(self, value: Value) -> Any:
        """Returns a value's shape; for a handle, that of its variable."""
        tensor = self.tensor(value)
        if tensor.dtype != tf.resource:
            return tensor.shape
        handle = _origin(value).node
        if handle in self._given:
            return self._given[handle].shape
        dims = handle.attrs["shape"].dims if "shape" in handle.attrs else None
        return tf.TensorShape(None if dims is None else [None if size < 0 else size for size in dims])

    def constant(self, value: Value) -> np.ndarray | None:
        """Returns what constants and shapes determine a value to be; None for others."""
        while value.node.op in ROUTES:
            value = value.node.inputs[0]
        tensor = self.tensor(value)
        if tensor.dtype in (tf.resource, tf.variant) or _is_looped(value.node):
            return None
        array = tf.get_static_value(tensor)
        return tf_internals.constant_value(tensor) if array is None else array

    def constants(self, node: Node) -> dict[int, np.ndarray]:
        """Returns input number -> value for a node's inputs with a known `constant`."""
        arrays = enumerate(map(self.constant, node.inputs))
        return {number: array for number, array in arrays if array is not None}

    def distinct(self, node: Node) -> frozenset[int]:
        """Returns the numbers of a node's inputs whose values are distinct integers."""
        return frozenset(number for number, value in enumerate(node.inputs) if self.is_distinct(value))

    def is_distinct(self, value: Value) -> bool:
        """Returns whether what a value holds is known to be distinct."""
        origin = _origin(value, _keeps_apart)
        node = origin.node
        if node.op in UNIQUE or UNIQUE_HERE in node.attrs:  # of a matrix its rows are distinct, and not its elements
            return origin.index == 0 and self.shape(origin).rank in (None, 1)
        if node in self._given and self._given[node].distinct:
            return True
        array = self.constant(value)
        if array is None:
            return node.op == "Range"
        return bool(array.dtype.kind == "i" and array.size == np.unique(array).size)


def _origin(value: Value, passes: Callable[[Node], bool] = lambda node: True) -> Value:
    """Where what a value holds is computed; ops that are not to be passed are such places too."""
    while value.node.op in SAME_VALUES and passes(value.node):
        value = value.node.inputs[0]
    return value


def _keeps_apart(node: Node) -> bool:
    """Whether different values stay different: not 1.2 and 1.7 as integers, nor 1 and 2**32 + 1 as int32."""
    if node.op != "Cast":
        return True
    was, now = (tf.as_dtype(int(node.attrs[name])) for name in ("SrcT", "DstT"))
    return bool(was.is_integer and now.is_integer and now.size >= was.size)


def _is_looped(node: Node) -> bool:
    """Whether a result may come from a loop, whose values the loopless graph lacks."""
    sources = reached([node], lambda node: [] if node.op in SHAPES else [value.node for value in node.inputs])
    return any(source.op in LOOPED for source in sources)


def inferred(graph_def: Any) -> Any:
    """Returns a GraphDef's `static_shapes.loopless` graph, in which each PlaceholderWithDefault is its default."""
    return static_shapes.loopless(_with_defaults(graph_def))


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
