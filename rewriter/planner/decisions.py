"""The outcome of planning as values: a reason and a decision for every slot, and the plan that holds them all."""

import enum
from bisect import bisect_right
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..graph.emulation import Running, Way
from ..graph.graph_view import GraphView, Slot
from ..tables.dtypes import FLOATS
from ..tables.policy import PrecisionPolicy
from .casts import CastEdit, Edits, changed_nodes


class Reason(enum.Enum):
    """Why a slot has the dtype it has. Every decision carries one."""

    NOT_FLOAT = "not float"
    WHITE = "white-listed"
    BLACK = "black-listed"
    CUBE = "matrix or convolution op in this mode"
    ALL = "this mode lowers every op"
    MODE = "this mode keeps it"
    RAISED = "this mode raises it to float32"
    CUSTOM = "customized by the user"
    ASKED = "asked for by scope (to_float)"
    NARROWED = "low-precision inputs, float32 arithmetic and result"
    FOLLOWS_LOW = "follows its low-precision producer"
    FOLLOWS_FLOAT32 = "follows its float32 producer"
    NO_LOW_PRODUCER = "no low-precision producer"
    ALREADY_LOW = "written in low precision"
    ALREADY_ROUNDED = "runs as float32 kernel on rounded values already"
    CAST = "Cast reads what its producer gives and writes what its author wrote"
    HARDWARE = "the profile's hardware runs it in low precision only"
    NO_KERNEL = "no low-precision kernel on its device"
    NO_LOW_TYPE = "the op definition admits no low precision"
    KEPT_ATTR = "kept by the op table"
    SCOPE = "kept by scope (_keep_dtype)"
    UNSCALES = "takes a loss scale out of gradients, which may be too small for float16 without it"
    BEYOND = "carries a constant beyond the low dtype to where its size counts, or computes with it there"
    BOUND = "a bound that low precision makes 0 or 1, at which what reads it divides by zero or has no logarithm"
    SOURCE = "a source: variables, constants, feeds and readers keep their dtype"
    FED = "fed from outside"
    REFERENCE = "reads or writes a reference variable"
    LATE = "reads a reference variable after a write that its input does not wait for"
    LOOP_LOW = "a loop variable, low because a low-precision value enters it"
    LOOP_FLOAT32 = "a loop variable, float32 because a computed float32 value enters it"
    LOOP_ADDS = "a loop variable that is added to keeps float32, so that small addends count"
    LOOP_DECIDES = "decides whether a loop goes on, which in float16 may never end"
    CONTAINER_LOW = "in a container (TensorArray, Stack, TensorList) that low-precision values are written to"
    CONTAINER_FLOAT32 = "in a container (TensorArray, Stack, TensorList) that computed float32 values are written to"
    MOVED = "moves what only low-precision consumers read: cast before it, not after"
    TIED = "a loop variable, or in a container, all of whose ops have one dtype"
    CONTAINER = "pinned because its container is made or used elsewhere"
    FUNCTION = "pinned because it calls a function that is left as written"
    PINNED = "pinned by the op table"
    UNLISTED = "not in the op table"
    # profile grappler
    DENIED = "black-listed values flow into it"
    BETWEEN = "between white-listed ops"
    BESIDE = "moves data beside a low-precision op"
    APART = "neither between white-listed ops nor beside a low-precision one"
    FETCHED = "fetched or run by name, which this profile leaves as written"
    ELSEWHERE = "not on the device that is rewritten for"
    LIST_LOW = "in a TensorList with a low-precision op"
    LIST_FLOAT32 = "in a TensorList that holds black-listed values or leaves the graph"
    BORDER = "goes into or out of a function, which this profile rewrites by itself"
    MERGE = "a loop's next value and its Merge have one dtype"
    CAST_LOW = "a Cast that only low-precision ops read"


class Decision(NamedTuple):
    """The decision for one slot.

    `because` is the slot (node name, slot) that caused it, if another slot did; `way` is how the node runs.
    """

    node: str
    op: str
    slot: Slot
    was: int
    becomes: int
    reason: Reason
    because: Optional[Tuple[str, Slot]]
    way: Way = Way.KERNEL


@dataclass(frozen=True)
class Plan:
    """All decisions, as parallel lists over the slots (slot k of node n is entry `first[n] + k`), and the edits.

    `becomes` has the decided dtypes; `running` has the dtypes that the nodes run in, and the reason where they differ.
    """

    view: GraphView
    policy: PrecisionPolicy
    first: Sequence[int]
    becomes: Sequence[int]
    reasons: Sequence[Reason]
    because: Sequence[int]
    running: Running
    edits: Edits
    warnings: Tuple[str, ...] = ()
    unmatched: Tuple[str, ...] = ()

    @property
    def casts(self) -> Tuple[CastEdit, ...]:
        """The casts to insert, in the order of their names."""
        return self.edits.casts

    @property
    def changed(self) -> bool:
        """Whether applying this plan changes the graph."""
        return bool(self.edits.casts or self.edits.reconnections or self.changed_nodes())

    def changed_nodes(self) -> Dict[int, Tuple[int, ...]]:
        """Positions of the nodes that get other dtypes than they have, ascending, and the dtypes of their slots."""
        kept: Dict[str, Dict[int, Tuple[int, ...]]] = vars(self)  # apply and both halves of verify ask
        if "_changed" not in kept:
            changed, runs = {}, self.running.runs
            for position in changed_nodes(self.view.nodes, self.first, runs):
                first = self.first[position]
                changed[position] = tuple(runs[first : first + len(self.view.nodes[position].dtypes)])
            kept["_changed"] = changed
        return kept["_changed"]

    def moved_nodes(self) -> List[int]:
        """Positions of the nodes that casts were moved across, ascending."""
        slots = [slot for slot, reason in enumerate(self.reasons) if reason is Reason.MOVED]
        positions = ((bisect_right(self.first, slot) - 1, slot) for slot in slots)
        return [position for position, slot in positions if self.first[position] == slot]

    def emulated(self) -> Dict[int, FrozenSet[int]]:
        """Positions of the nodes that run in float32 for a low dtype -> which of their slots do; of Casts none."""
        runs = self.running.runs
        return {
            position: frozenset(k for k, slot in enumerate(self._slots(position)) if runs[slot] != self.becomes[slot])
            for position, way in self.running.ways.items()
            if way is not Way.ROUNDS
        }

    def decisions(self) -> Iterator[Decision]:
        """One decision a slot of a floating dtype, ordered by node name."""
        owner = [position for position, node in enumerate(self.view.nodes) for _ in node.dtypes]
        for position, node in sorted(enumerate(self.view.nodes), key=lambda pair: pair[1].name):
            for k, was in enumerate(node.dtypes):
                slot = self.first[position] + k
                if was in FLOATS:
                    cause = self.because[slot]
                    because = None if cause < 0 else self._slot_name(owner[cause], cause)
                    becomes, reason = self.becomes[slot], self.reasons[slot]
                    way = Way.KERNEL if self.running.runs[slot] == becomes else self.running.ways[position]
                    yield Decision(node.name, node.op, node.layout.slots[k], was, becomes, reason, because, way)

    def _slots(self, position: int) -> range:
        return range(self.first[position], self.first[position] + len(self.view.nodes[position].dtypes))

    def _slot_name(self, position: int, slot: int) -> Tuple[str, Slot]:
        node = self.view.nodes[position]
        return node.name, node.layout.slots[slot - self.first[position]]
