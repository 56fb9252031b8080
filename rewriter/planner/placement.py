"""Moves casts across ops that only move data, if that removes one or hoists one out of a loop. No bit changes.

    weight -> Enter -> [Cast] -> MatMul (in a loop)          becomes   weight -> [Cast] -> Enter -> MatMul
    x -> Scatter ... Read (in a loop) -> [Cast] -> MatMul    becomes   x -> [Cast] -> Scatter ... Read -> MatMul
    MatMul -> [Cast] -> Write (in a loop) ... Gather         becomes   MatMul -> Write ... Gather -> [Cast]

A float32 op that moves neutral data (see plan.py) is lowered when all readers of its values are low. The last line
shows a gradient array, which shares its forward array's dtype: low values in a float32 array, whoever reads them.
"""

from typing import Dict, List, Sequence, Set, Tuple

from ..graph.ties import CONTAINERS
from ..tables.dtypes import FLOAT32
from ..tables.policy import Action
from .decisions import Reason
from .state import LIKE, LOWERED, NEUTRAL, State, lowered, producer

SHAPE_ONLY = frozenset({"Shape", "Size", "Rank"})  # these read no values: whatever dtype they get is right
# these give a part of what they read: a cast in front would convert a whole embedding table for the rows of a batch
TAKES_PART = frozenset({"Gather", "GatherV2", "GatherNd", "Slice", "StridedSlice", "DynamicPartition"})
Readers = Dict[int, List[Tuple[int, int]]]  # position -> (position, data input number) of who reads its first slot


def move_casts(state: State, order: Sequence[int]) -> None:
    """Lowers the slots of data-moving ops that only low-precision consumers read.

    Args:
        state: the planner's lists; `becomes`, `reasons` and `because` are changed.
        order: positions of the nodes in topological order.
    """
    if state.policy.gray is not Action.FOLLOW:
        return
    candidates = _candidates(state)
    if not candidates:
        return
    readers = _readers_of(state, candidates)
    nodes = state.view.nodes
    backwards = [p for p in reversed(order) if p in candidates and p not in state.tie_of]
    unread = _without_readers(state, backwards, readers)
    ties = [tie for number, tie in enumerate(state.ties) if _is_neutral(state, number)]
    together = [[p for p, _ in tie.members] for tie in ties] + [[p] for p in reversed(backwards)]
    unit = {p: positions for positions in together for p in positions}
    waiting = together  # from the end on, so that readers come first; who is read by what was lowered is asked again
    while waiting:
        positions = waiting.pop()
        inside = set(positions)
        outside = [r for p in positions for r in readers.get(p, ()) if r[0] not in inside]
        is_low = state.becomes[state.first[positions[0]]] != FLOAT32
        if not is_low and _all_low(state, outside, unread, len(inside) > 1) and _lower(state, positions):
            waiting += [unit[port.node] for p in positions for port in nodes[p].inputs if port.node in unit]
    _follow_inputs(state, [position for position in reversed(backwards) if position in unread])


def _follow_inputs(state: State, unread: Sequence[int]) -> None:
    """Lowers data-moving ops without readers whose input is low."""
    for position in unread:
        slot, _ = producer(state, state.view.nodes[position], 0)
        if slot >= 0 and state.becomes[slot] == state.policy.low:
            _lower(state, [position])


def _without_readers(state: State, backwards: Sequence[int], readers: Readers) -> Set[int]:
    """Positions of candidates without readers, such as the Identity that TensorFlow puts behind a loop's results."""
    without_readers: Set[int] = set()
    for position in backwards:
        if all(reader in without_readers for reader, _ in readers.get(position, ())):
            without_readers.add(position)
    return without_readers


def _candidates(state: State) -> Set[int]:
    """Positions of float32 ops that move neutral data, and of members of ties that do; their first slot is meant."""
    candidates = set()
    for kind in state.view.kinds():
        node = state.view.nodes[kind[0]]
        entry = state.table.entries.get(node.op)
        if entry is None or node.dtypes[:1] != (FLOAT32,):
            continue
        moves = entry.role == "moves" and node.op not in TAKES_PART
        candidates.update([position for position in kind if _may_be_lowered(state, position, moves)])
    return candidates


def _may_be_lowered(state: State, position: int, moves: bool) -> bool:
    """Whether the float32 op at a position, which only moves data or is in a tie, gives neutral float32 data."""
    slot, tied = state.first[position], state.tie_of.get(position)
    if state.meaning[slot] != NEUTRAL or state.becomes[slot] != FLOAT32 or position in state.view.preserved:
        return False
    if state.reasons[slot] in (Reason.CUSTOM, Reason.ASKED):
        return False
    return moves and position not in state.pins if tied is None else _is_neutral(state, tied)


def _is_neutral(state: State, number: int) -> bool:
    """Whether a tie is a container of neutral data, or a neutral loop variable that no iteration changes.

    The gradient array of such a container must have low values, and no other graph may read the container.
    """
    tie = state.ties[number]
    moves = tie.unchanged or state.view.nodes[tie.members[0][0]].op in CONTAINERS
    if not moves or state.outcome[number].meaning != NEUTRAL:
        return False
    if tie.gradients and number not in state.gradients_low:
        return False
    return state.view.preserved.isdisjoint(p for p, _ in tie.members if p not in tie.gradients)


def _readers_of(state: State, candidates: Set[int]) -> Readers:
    nodes = state.view.nodes
    return {
        giver: [
            (position, number)
            for position in dict.fromkeys(state.consumers[giver])
            for number, (source, output) in enumerate(nodes[position].inputs)
            if source == giver and nodes[giver].layout.outputs[output] == 0
        ]
        for giver in candidates
    }


def _all_low(state: State, readers: Sequence[Tuple[int, int]], unread: Set[int], of_loop: bool) -> bool:
    """Whether all readers, and at least one that reads values, take the low dtype.

    A cast of its own for the zeros of a gradient's beginning is worth one that a loop does not make in every iteration.
    """
    values = 0
    for position, number in readers:
        if position in unread:
            continue
        node = state.view.nodes[position]
        if node.op in SHAPE_ONLY and state.reasons[state.first[position]] is not Reason.FED:
            continue
        slot = node.layout.inputs[number]
        if slot >= 0 and state.becomes[state.first[position] + slot] == state.policy.low and node.op != "Cast":
            values += 1
        elif not of_loop or node.op not in LIKE:
            return False
    return values > 0


def _lower(state: State, positions: Sequence[int]) -> bool:
    """Lowers one node, or all members of a container; returns whether their kernels allow it."""
    for position in positions:
        node = state.view.nodes[position]
        if not state.kernels.runs(node.layout, node.device, tuple(lowered(state, d) for d in node.dtypes)):
            return False
    for position in positions:
        slot = state.first[position]
        state.becomes[slot] = state.policy.low
        state.reasons[slot] = Reason.MOVED
        state.because[slot] = state.because[slot] if state.meaning[slot] == LOWERED else -1
    return True
