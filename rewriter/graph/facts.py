"""Static properties of a graph's tensors, as the planner queries them."""

from typing import Any, Optional, Tuple

from .graph_view import Port


class Facts:
    """Knows nothing; `inference.ranges.Ranges` knows what TensorFlow's constants and shapes tell."""

    def sums_nothing(self, position: int) -> bool:
        """Whether each element of the result of the Sum at a position is known to be one element of its input."""
        return False

    def range(self, port: Port) -> Optional[Tuple[float, float]]:
        """The least and the greatest value of an output, None if unknown."""
        return None

    def overflows(self, port: Port, dtype: int) -> bool:
        """Whether an output is a constant with finite values that a low dtype rounds to infinity."""
        return False

    def shape(self, port: Port) -> Optional[Tuple[Any, ...]]:
        """The dimensions of an output, numbers and symbols; None if unknown."""
        return None

    def integers(self, port: Port) -> Optional[Tuple[int, ...]]:
        """The value of an output that is a vector of integers, or one integer; None if unknown."""
        return None


NO_FACTS = Facts()
