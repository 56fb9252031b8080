"""Clips whose bound keeps a logarithm or a divisor off its pole, and is that pole in a low dtype: they stay float32.

p -> Minimum(1 - 1e-7) -> 1 - p -> Log      1 - 1e-7 is 1 in float16, and the logarithm that of zero

What follows such a clip follows its float32; its gradient compares in the same dtype.
"""

from typing import Sequence, Set

from ..graph.facts import Facts
from ..graph.graph_view import GraphView
from ..tables.dtypes import BFLOAT16, FLOAT16, ZERO_UP_TO
from .clamping import MOVES

# op -> the inputs that are its bounds
CLIPS = {"Minimum": (0, 1), "Maximum": (0, 1), "ClipByValue": (1, 2)}
COMPARES = ("Less", "LessEqual", "Greater", "GreaterEqual")
# op -> the input that has a pole at zero
POLES = {"RealDiv": 1, "Div": 1, "Rsqrt": 0, "Reciprocal": 0, "Inv": 0, "Log": 0, "Log1p": 0}
PASSES = MOVES | {"Sub", "Neg", "Add", "AddV2"} | set(CLIPS)
DEEP = 8  # ops between a clip and the pole
BITS = {FLOAT16: 11, BFLOAT16: 8}  # of a number's fraction, with the first one


def bounded_nodes(view: GraphView, facts: Facts, low: int, consumers: Sequence[Sequence[int]]) -> Set[int]:
    """Returns the positions of such clips, and of comparisons of what they clip with their bounds.

    Args:
        view: the graph.
        facts: what is known of its constants.
        low: the dtype that the mode lowers to.
        consumers: by position of a node its readers.
    """
    clips = {
        position
        for position in view.of_ops(CLIPS)
        if _has_lost_bound(view, facts, low, position) and _reaches_pole(view, consumers, position)
    }
    pairs = {frozenset(view.nodes[position].inputs) for position in clips}
    beside = {
        reader
        for position in clips
        for port in view.nodes[position].inputs
        for reader in consumers[port.node]
        if view.nodes[reader].op in COMPARES and frozenset(view.nodes[reader].inputs) in pairs
    }
    return clips | beside


def _has_lost_bound(view: GraphView, facts: Facts, low: int, position: int) -> bool:
    node = view.nodes[position]
    limits = [facts.range(node.inputs[number]) for number in CLIPS[node.op]]
    return any(limit is not None and limit[0] == limit[1] and _is_lost(limit[0], low) for limit in limits)


def _is_lost(number: float, low: int) -> bool:
    """Whether a low dtype makes 0, 1 or -1 of another number."""
    size, bits = abs(number), BITS[low]
    is_zero = low == FLOAT16 and 0 < size <= ZERO_UP_TO
    return is_zero or (size != 1 and 1 - 2.0 ** -(bits + 1) <= size <= 1 + 2.0**-bits)


def _reaches_pole(view: GraphView, consumers: Sequence[Sequence[int]], position: int) -> bool:
    seen, ahead = {position}, [(position, DEEP)]
    while ahead:
        at, left = ahead.pop()
        for reader in consumers[at]:
            node = view.nodes[reader]
            if node.op in POLES and node.inputs[POLES[node.op]].node == at:
                return True
            if left and node.op in PASSES and reader not in seen:
                seen.add(reader)
                ahead.append((reader, left - 1))
    return False
