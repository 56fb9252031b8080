"""What can be told of a graph's tensors before they are computed, as planning asks for it."""

from typing import Optional, Tuple

from .graph_view import Port


class Facts:
    """Knows nothing; `inference.ranges.Ranges` knows what TensorFlow's constants and shapes tell."""

    def sums_nothing(self, position: int) -> bool:
        """Whether each element of the result of the Sum at a position is known to be one element of its input."""
        return False

    def range(self, port: Port) -> Optional[Tuple[float, float]]:
        """The least and the most that an output may be, None where that cannot be told."""
        return None


NO_FACTS = Facts()
