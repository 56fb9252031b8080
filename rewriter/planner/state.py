"""The planner's working state: one entry per slot, and the queries that every rule makes."""

import enum
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..graph.emulation import already_rounded
from ..graph.facts import NO_FACTS, Facts
from ..graph.graph_view import GraphView, Node
from ..graph.kernel_table import KernelTable
from ..graph.references import readings
from ..graph.ties import COMPARES, Tie, find_ties, limits, readers
from ..tables.dtypes import FLOAT32, FLOATS
from ..tables.op_table import OpTable
from ..tables.policy import Action, PrecisionPolicy
from .bounds import bounded_nodes
from .carried import carriers
from .casts import Narrowed
from .conditions import deciding
from .decisions import Reason
from .overrides import Left
from .unscaling import unscaling_nodes


class Meaning(enum.IntEnum):
    """What a tensor means to a gray consumer: NEUTRAL decides nothing, COMPUTED in float32 raises, LOWERED lowers."""

    NEUTRAL = 0
    COMPUTED = 1
    LOWERED = 2


NEUTRAL, COMPUTED, LOWERED = Meaning
UNKNOWN = 1 << 30  # no round yet
LIKE = frozenset({"ZerosLike", "OnesLike"})  # they read a shape only: their result is as neutral as a constant


class Outcome(NamedTuple):
    """The assumption about a tie in this round: its meaning, and the reason and slot that caused it."""

    meaning: Meaning
    reason: Reason
    because: int = -1


class State:
    """The lists that planning fills, one entry a slot."""

    def __init__(
        self, view: GraphView, table: OpTable, policy: PrecisionPolicy, kernels: KernelTable, facts: Facts = NO_FACTS
    ) -> None:
        self.view, self.table, self.policy, self.kernels, self.facts = view, table, policy, kernels, facts
        self.first: List[int] = []
        self.becomes: List[int] = []
        for node in view.nodes:
            self.first.append(len(self.becomes))
            self.becomes += node.dtypes
        count = len(self.becomes)
        self.reasons: List[Reason] = [Reason.NOT_FLOAT] * count
        self.because: List[int] = [-1] * count
        self.meaning: List[Meaning] = [COMPUTED] * count
        self.constant: List[bool] = [False] * len(view.nodes)  # a constant, or computed from constants only
        self.consumers = view.consumers()
        self.readings = readings(view)
        self.pins = dict.fromkeys(already_rounded(view.nodes, kernels), Reason.ALREADY_ROUNDED)
        self.pins.update(find_pins(view, self.readings.late))
        if policy.gray in (Action.FOLLOW, Action.LOWER):
            self.pins = {**dict.fromkeys(unscaling_nodes(view, facts), Reason.UNSCALES), **self.pins}
            self.pins = {**dict.fromkeys(carriers(view, facts, table, policy.low), Reason.BEYOND), **self.pins}
        if policy.gray is Action.FOLLOW:
            bounded = bounded_nodes(view, facts, policy.low, self.consumers)
            self.pins = {**dict.fromkeys(bounded, Reason.BOUND), **self.pins}
        self.narrowed: Dict[int, Narrowed] = {}  # node -> what its inputs are rounded to
        self.left: Left = {}  # nodes that stay as they are against a request for their type
        self.round = 0
        self.since = [[UNKNOWN] * count for _ in Meaning]  # by meaning: first round that gave it
        ties = find_ties(view) if policy.gray is not Action.KEEP else ()
        self.ties = [tie for tie in ties if view.nodes[tie.members[0][0]].dtypes[0] in FLOATS]
        if policy.gray is Action.LOWER:
            self.pins = {**_counting(view, self.ties, table), **self.pins}
        self._all_ties = ties
        self._tied: Optional[FrozenSet[int]] = None  # positions, once `is_tied` is asked
        self.outcome: List[Outcome] = [_first_outcome(view, tie, policy) for tie in self.ties]
        self.gradients_low: Dict[int, int] = {}  # float32 container with low gradients -> the slot that one comes from
        self.tie_of = {position: number for number, tie in enumerate(self.ties) for position, _ in tie.members}

    def is_tied(self, position: int) -> bool:
        """Whether a node's slots are in a tie, also in a mode that changes none and so has looked for none."""
        if self._tied is None:
            ties = self._all_ties or find_ties(self.view)
            self._tied = frozenset(position for tie in ties for position, _ in tie.members)
        return position in self._tied

    def forget(self, position: int, meaning: Meaning) -> None:
        """Forgets in which round the slots of a node had a meaning."""
        for slot in range(self.first[position], self.first[position] + len(self.view.nodes[position].dtypes)):
            self.since[meaning][slot] = UNKNOWN

    def earliest(self, meaning: Meaning, slots: List[int]) -> int:
        """Of slots with this meaning the one that had it first, so that chains of causes lead out of loops."""
        return min(slots, key=lambda slot: self.since[meaning][slot] if slot >= 0 else -1)


def set_meaning(state: State, slot: int, meaning: Meaning) -> None:
    """Records what a slot's tensors mean to gray consumers, and the first round in which they did."""
    state.meaning[slot] = meaning
    if state.since[meaning][slot] == UNKNOWN:
        state.since[meaning][slot] = state.round


def producer(state: State, node: Node, number: int) -> Tuple[int, Meaning]:
    """The slot that governs what data input `number` gets (-1 for a fixed dtype), and its meaning to a gray op."""
    port = node.inputs[number]
    slot = state.view.nodes[port.node].layout.outputs[port.port]
    if slot < 0:
        return -1, COMPUTED
    slot += state.first[port.node]
    return slot, state.meaning[slot]


def strongest(state: State, producers: List[Tuple[int, Meaning]]) -> Tuple[Meaning, int]:
    """Of (slot, meaning) pairs: computed float32 if there is any, else low if any, else neutral; and its slot."""
    strength = NEUTRAL
    for _, meaning in producers:
        if meaning == COMPUTED:
            strength = COMPUTED
            break
        if meaning == LOWERED:
            strength = LOWERED
    if strength == NEUTRAL:
        return NEUTRAL, -1
    slots = [slot for slot, meaning in producers if meaning == strength]
    return strength, slots[0] if len(slots) == 1 else state.earliest(strength, slots)


def find_pins(view: GraphView, late: FrozenSet[int]) -> Dict[int, Reason]:
    """Positions of the nodes that keep their dtypes in every mode, with the reason; later reasons take precedence."""
    nodes, consumers, references = view.nodes, view.consumers(), view.references()
    pins = dict.fromkeys(late, Reason.LATE)
    for giver in references:
        for reader in consumers[giver] if nodes[giver].layout.ref_outputs else ():
            if any(p == giver and number in nodes[giver].layout.ref_outputs for p, number in nodes[reader].inputs):
                # a cast of a reference would read the variable at a time of its own choosing
                pins[reader] = Reason.REFERENCE if nodes[reader].layout.op != "Identity" else Reason.SOURCE
    pins.update(dict.fromkeys(references, Reason.REFERENCE))
    pins.update(dict.fromkeys((port.node for port in view.fed), Reason.FED))
    pins.update(dict.fromkeys([p for p, node in enumerate(nodes) if node.kept], Reason.SCOPE))
    return pins


def lowered(state: State, dtype: int) -> int:
    """The dtype that the mode lowers a dtype number to: only float32 is lowered."""
    return state.policy.low if dtype == FLOAT32 else dtype


def _counting(view: GraphView, ties: Sequence[Tie], table: OpTable) -> Dict[int, Reason]:
    """The ops that count where the mode lowers what it can, those that compare a count, and those that hand it on.

    In float16 a counter stops at 2048, and a loop that waits for more never ends.
    """
    decides = deciding(view, ties, table.is_product)
    deciders = [tie for tie in ties if any(position in decides for position, _ in tie.members)]
    return {
        **dict.fromkeys([*decides, *_compared(view, deciders)], Reason.LOOP_DECIDES),
        **dict.fromkeys(_compared(view, [tie for tie in ties if tie.adders]), Reason.LOOP_ADDS),
    }


def _compared(view: GraphView, counters: Sequence[Tie]) -> Set[int]:
    """The ops that add to loop variables, compare these, hand them on, or hand on what they are compared with."""
    counting = {position for tie in counters for position in (*tie.adders, *readers(view, tie))}
    return counting.union(limits(view, [position for position in counting if view.nodes[position].op in COMPARES]))


def _first_outcome(view: GraphView, tie: Tie, policy: PrecisionPolicy) -> Outcome:
    if policy.gray is Action.RAISE:
        return Outcome(COMPUTED, Reason.RAISED)
    if policy.gray is Action.FOLLOW and all(view.nodes[position].moved for position, _ in tie.members):
        return Outcome(NEUTRAL, Reason.ALREADY_LOW)
    if tie.adders:
        return Outcome(COMPUTED, Reason.LOOP_ADDS)
    return Outcome(LOWERED, Reason.ALL if policy.gray is Action.LOWER else Reason.LOOP_LOW)
