"""What takes a loss scale out of gradients stays float32: unscaled they may be too small, or too large, for float16.

g (float16) -> RealDiv(8192) -> ApplyGradientDescent        becomes   g -> [Cast] -> RealDiv(8192) -> Apply...
"""

from typing import Iterable, Optional, Sequence, Set

from ..graph.factors import Graph, unscaling, unscaling_by_start
from ..graph.facts import Facts
from ..graph.graph_view import GraphView, Port
from ..tables.dtypes import FLOATS


class _View(Graph):
    """A GraphView: its ops are positions, its tensors ports."""

    def __init__(self, view: GraphView, facts: Facts) -> None:
        self._view, self._facts, self._readers = view, facts, view.consumers()

    def op(self, tensor: Port) -> int:
        return tensor.node

    def kind(self, op: int) -> str:
        return self._view.nodes[op].op

    def name(self, op: int) -> str:
        return self._view.nodes[op].name

    def inputs(self, op: int) -> Sequence[Port]:
        return self._view.nodes[op].inputs

    def readers(self, op: int) -> Iterable[int]:
        return self._readers[op]

    def is_scalar(self, tensor: Port) -> bool:
        if self._view.nodes[tensor.node].output_dtype(tensor.port) not in FLOATS:
            return False
        shape = self._facts.shape(tensor)
        return shape is not None and all(size == 1 for size in shape)

    def constant(self, tensor: Port) -> Optional[float]:
        limits = self._facts.range(tensor) if self.is_scalar(tensor) else None
        return None if limits is None or limits[0] != limits[1] else limits[0]


def unscaling_nodes(view: GraphView, facts: Facts) -> Set[int]:
    """Positions of the nodes that take a scale out of gradients: those that are marked so, and those that show it."""
    marked = {position for position, node in enumerate(view.nodes) if node.unscales}
    graph = _View(view, facts)
    return marked | unscaling(graph, unscaling_by_start(graph, view.of_ops(["Mul"])))
