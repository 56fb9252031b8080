"""Loop variables and containers: a tie's dtype depends on its inputs, which in turn depend on the tie's dtype.

Two questions, each answered by deciding the whole graph to a fixed point:

    could it be low?    every tie is assumed low; one that a computed float32 value flows into becomes float32
    need it be low?     the rest are assumed neutral; one that a low value flows into becomes low

A tie that could be low but has no low input (a loop of gray ops on a constant, for example) stays as written, and both
questions are asked again. Each answer is final, so this terminates.

A container that stays float32 because it has no low producer may receive low values in its gradient array. Readers of
that array see low values all the same; `State.gradients_low` lists these containers.
"""

from typing import Dict, List, Optional, Tuple

from ..graph.graph_view import Node
from ..graph.ties import CONTAINERS, MEMBERS, POP, WRITE, Feeder, Tie
from ..tables.dtypes import FLOAT32, LOW
from ..tables.policy import Action
from .decisions import Reason
from .state import COMPUTED, LOWERED, NEUTRAL, Meaning, Outcome, State, lowered, producer, set_meaning, strongest
from .worklist import Worklist


def settle_ties(state: State, worklist: Worklist) -> None:
    """Decides the graph as often as its ties require: once if there are none.

    Args:
        state: the planner's lists; `outcome` has the result for each tie.
        worklist: decides slots under the assumptions of `state.outcome`.
    """
    worklist.all()
    open_ties = [number for number, outcome in enumerate(state.outcome) if outcome.meaning == LOWERED]
    while open_ties:
        open_ties = _could_be_low(state, worklist, open_ties)
        if state.policy.gray is not Action.FOLLOW:
            return
        grounded = _need_be_low(state, worklist, open_ties)
        if len(grounded) == len(open_ties):
            return
        for number in grounded:
            state.outcome[number] = Outcome(LOWERED, Reason.LOOP_LOW)
        open_ties = grounded
        worklist.all()


def _could_be_low(state: State, worklist: Worklist, open_ties: List[int]) -> List[int]:
    """Makes ties that cannot be low float32, to a fixed point; returns the others."""
    left, asked = set(open_ties), {*open_ties, *state.gradients_low}
    fed_by = _fed_by(state)
    while asked:
        obstacles = {number: _obstacle(state, state.ties[number]) for number in sorted(asked & left)}
        raised = {number: obstacle for number, obstacle in obstacles.items() if obstacle is not None}
        for number, obstacle in raised.items():
            state.outcome[number] = obstacle
        left.difference_update(raised)
        lost = [number for number in sorted(asked & set(state.gradients_low)) if _low_gradient(state, number) is None]
        for number in lost:
            del state.gradients_low[number]
        state.round += 1
        asked = {n for p in worklist.after([*raised, *lost]) for n in fed_by.get(p, ())} if raised or lost else set()
    return sorted(left)


def _obstacle(state: State, tie: Tie) -> Optional[Outcome]:
    """The reason why a tie cannot be low, or None."""
    # of several reasons the first by name is reported, so that the order of the nodes does not matter
    for position in sorted((position for position, _ in tie.members), key=lambda p: state.view.nodes[p].name):
        reason = _tied_pin(state, position)
        if reason is not None:
            return Outcome(COMPUTED, reason)
    meaning, cause = strongest(state, _feeding(state, tie))
    if meaning == COMPUTED and state.policy.gray is Action.FOLLOW:
        return Outcome(COMPUTED, Reason.LOOP_FLOAT32 if _is_loop(state, tie) else Reason.CONTAINER_FLOAT32, cause)
    return None


def _need_be_low(state: State, worklist: Worklist, open_ties: List[int]) -> List[int]:
    """Assumes ties neutral until a low value flows into them; returns those that receive one."""
    for number in open_ties:
        state.outcome[number] = Outcome(NEUTRAL, Reason.NO_LOW_PRODUCER)
    state.gradients_low.clear()
    worklist.forget(LOWERED)
    worklist.all()
    left, asked = set(open_ties), set(range(len(state.ties)))
    fed_by = _fed_by(state)
    while asked:
        outcomes = {}
        for number in sorted(asked & left):
            low = [slot for slot, meaning in _feeding(state, state.ties[number]) if meaning == LOWERED]
            if low:
                reason = Reason.LOOP_LOW if _is_loop(state, state.ties[number]) else Reason.CONTAINER_LOW
                outcomes[number] = Outcome(LOWERED, reason, state.earliest(LOWERED, low))
        gradients = {number: _low_gradient(state, number) for number in asked.difference(state.gradients_low)}
        state.round += 1
        for number, outcome in outcomes.items():
            state.outcome[number] = outcome
        left.difference_update(outcomes)
        filled = {number: slot for number, slot in gradients.items() if slot is not None}
        state.gradients_low.update(filled)
        asked = (
            {n for p in worklist.after([*outcomes, *filled]) for n in fed_by.get(p, ())}
            if outcomes or filled
            else set()
        )
    return sorted(set(open_ties) - left)


def _low_gradient(state: State, number: int) -> Optional[int]:
    """The slot of a low value that is written into the gradient array of a neutral container, if all are low.

    What is written at an index that does not change in a loop is added up, and in float32 that is computed.
    """
    if not state.ties[number].gradients or state.outcome[number].meaning != NEUTRAL:
        return None
    slots = []
    for position, value in _gradient_feeders(state, state.ties[number]):
        node = state.view.nodes[position]
        slot, meaning = producer(state, node, value)
        added_up = node.op == WRITE and state.view.nodes[node.inputs[1].node].op != POP
        if meaning != LOWERED or added_up:
            return None
        slots.append(slot)
    return state.earliest(LOWERED, slots) if slots else None


def _fed_by(state: State) -> Dict[int, List[int]]:
    """Numbers of the ties that a node's outputs flow into, or into gradients of which, by the position of the node."""
    fed: Dict[int, List[int]] = {}
    for tie_number, tie in enumerate(state.ties):
        for position, number in (*tie.feeders, *_gradient_feeders(state, tie)):
            fed.setdefault(state.view.nodes[position].inputs[number].node, []).append(tie_number)
    return fed


def _gradient_feeders(state: State, tie: Tie) -> List[Feeder]:
    """The data inputs that are written into a container's gradient array."""
    gradients = sorted(tie.gradients, key=lambda position: state.view.nodes[position].name)
    writes = [(position, MEMBERS[state.view.nodes[position].op]) for position in gradients]
    return [(position, number) for position, number in writes if number is not None]


def _feeding(state: State, tie: Tie) -> List[Tuple[int, Meaning]]:
    """Yields (slot, meaning) of each input of a tie."""
    return [producer(state, state.view.nodes[position], number) for position, number in tie.feeders]


def _is_loop(state: State, tie: Tie) -> bool:
    return state.view.nodes[tie.members[0][0]].op not in CONTAINERS


def _tied_pin(state: State, position: int) -> Optional[Reason]:
    """Why a member of a tie cannot be low, or None."""
    node = state.view.nodes[position]
    if state.kernels.runs(node.layout, node.device, tuple(lowered(state, d) for d in node.dtypes)):
        return state.pins.get(position)
    return Reason.NO_KERNEL


def decide_tied(state: State, position: int, node: Node) -> None:
    """Gives a member of a tie the tie's assumed dtype."""
    slot = state.first[position]
    number = state.tie_of[position]
    outcome = state.outcome[number]
    was = node.dtypes[0]
    if outcome.meaning == LOWERED:
        state.becomes[slot] = lowered(state, was)
    else:
        state.becomes[slot] = FLOAT32 if outcome.reason is Reason.RAISED else was
    as_written_low = was in LOW and state.becomes[slot] == was
    state.reasons[slot] = Reason.ALREADY_LOW if as_written_low else outcome.reason
    cause = state.gradients_low.get(number) if position in state.ties[number].gradients else None
    state.because[slot] = outcome.because if cause is None else cause
    is_low = state.becomes[slot] in LOW or cause is not None or outcome.reason is Reason.ALREADY_ROUNDED
    set_meaning(state, slot, LOWERED if is_low and not node.moved else outcome.meaning)
