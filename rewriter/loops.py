"""Loop variables and containers: a tie is taken to be something, all is decided, and what flows in is held against it.

    neutral -> low as soon as a low-precision value flows in -> float32 as soon as a computed float32 value does

It never goes back, so after a few rounds nothing changes.
"""

from typing import Optional

from .decisions import Reason
from .dtypes import FLOAT32, LOW
from .graph_view import Node
from .policy import Action
from .state import COMPUTED, LOWERED, Outcome, State, lowered, pin, producer, set_meaning, strongest
from .ties import MEMBERS, Tie


def settle(state: State) -> bool:
    """Holds what each tie was taken to be against what flows into it; says whether nothing has to be decided again.

    A tie goes from neutral to low to float32 and never back, so this ends.
    """
    before = list(state.outcome)
    for number, tie in enumerate(state.ties):
        if state.outcome[number].meaning != COMPUTED:
            state.outcome[number] = _next_outcome(state, tie, state.outcome[number])
    state.round += 1
    return state.outcome == before


def _next_outcome(state: State, tie: Tie, now: Outcome) -> Outcome:
    nodes = state.view.nodes
    loop = nodes[tie.members[0][0]].op not in MEMBERS
    producers = [producer(state, nodes[position], number) for position, number in tie.feeders]
    meaning, cause = strongest(state, producers)
    if meaning == COMPUTED and state.policy.gray is Action.FOLLOW:
        return Outcome(COMPUTED, Reason.LOOP_FLOAT32 if loop else Reason.CONTAINER_FLOAT32, cause)
    if now.meaning == LOWERED or meaning == LOWERED:
        pinned = [_tied_pin(state, position) for position, _ in tie.members]
        if any(pinned):
            return Outcome(COMPUTED, next(reason for reason in pinned if reason))
        if now.meaning != LOWERED:
            return Outcome(LOWERED, Reason.LOOP_LOW if loop else Reason.CONTAINER_LOW, cause)
    return now


def _tied_pin(state: State, position: int) -> Optional[Reason]:
    """Why a member of a tie cannot be low, or None."""
    node = state.view.nodes[position]
    if state.kernels.runs(node.layout, node.device, tuple(lowered(state, d) for d in node.dtypes)):
        return pin(state, position, node)
    return Reason.NO_KERNEL


def decide_tied(state: State, position: int, node: Node) -> None:
    """A member of a tie has the dtype that the tie is taken to have."""
    slot = state.first[position]
    outcome = state.outcome[state.tie_of[position, 0]]
    was = node.dtypes[0]
    if outcome.meaning == LOWERED:
        state.becomes[slot] = lowered(state, was)
    else:
        state.becomes[slot] = FLOAT32 if outcome.reason is Reason.RAISED else was
    as_written_low = was in LOW and state.becomes[slot] == was
    state.reasons[slot] = Reason.ALREADY_LOW if as_written_low else outcome.reason
    state.because[slot] = outcome.because
    set_meaning(state, slot, LOWERED if state.becomes[slot] in LOW else outcome.meaning)
