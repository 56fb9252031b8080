"""Decides the nodes of a graph in topological order: all of them, or again those that a changed tie reaches."""

import heapq
from itertools import chain
from typing import Callable, Iterable, List, Optional, Sequence, Set, Tuple

from ..tables.dtypes import FLOATS
from .state import Meaning, State


class Worklist:
    """Rounds of decisions: one after a changed tie costs what it reaches, so that chains of loops stay linear."""

    def __init__(self, state: State, order: Sequence[int], decide: Callable[[int], None]) -> None:
        """Selects the nodes that have slots to decide.

        Args:
            state: the planner's lists, which `decide` fills.
            order: positions of all nodes in topological order.
            decide: decides the slots of the node at a position, whose producers are decided.
        """
        self._state, self._decide = state, decide
        with_floats = (kind for kind in state.view.kinds() if not FLOATS.isdisjoint(state.view.nodes[kind[0]].dtypes))
        to_decide = set(chain.from_iterable(with_floats))
        self._order = [position for position in order if position in to_decide]
        self._rank = {position: rank for rank, position in enumerate(self._order)} if state.ties else {}
        self._behind: Optional[List[int]] = None  # positions of what can change once all has been decided
        self._late: Set[int] = set()  # ranks that a back edge reached after their turn

    def all(self) -> None:
        """Decides every node; after the first time only those behind ties, since no other can change."""
        self._late.clear()
        for position in self._order if self._behind is None else self._behind:
            self._decide(position)
        if self._behind is None:
            self._behind = self._behind_ties()

    def forget(self, meaning: Meaning) -> None:
        """Forgets in which rounds the slots that can change had a meaning."""
        for position in self._behind or ():
            self._state.forget(position, meaning)

    def after(self, ties: Iterable[int]) -> Set[int]:
        """Decides the members of ties, given by number, and their dependents again; returns what has changed."""
        self._late.update(self._rank[position] for number in ties for position, _ in self._state.ties[number].members)
        worklist = sorted(self._late)
        self._late = set()
        done, changed = -1, set()
        while worklist:
            rank = heapq.heappop(worklist)
            if rank == done:
                continue
            done, position = rank, self._order[rank]
            was = self._decided(position)
            self._decide(position)
            if self._decided(position) != was:
                changed.add(position)
                for consumer in [self._rank[c] for c in self._state.consumers[position] if c in self._rank]:
                    if consumer > rank:
                        heapq.heappush(worklist, consumer)
                    else:
                        self._late.add(consumer)
        return changed

    def _behind_ties(self) -> List[int]:
        """Positions of the members of ties and of all that depends on them, in topological order."""
        waiting = [position for tie in self._state.ties for position, _ in tie.members]
        behind = set(waiting)
        for position in waiting:  # grows while it is read
            new = [consumer for consumer in self._state.consumers[position] if consumer not in behind]
            behind.update(new)
            waiting += new
        return [position for position in self._order if position in behind]

    def _decided(self, position: int) -> Tuple[List[int], List[Meaning]]:
        state = self._state
        start = state.first[position]
        end = start + len(state.view.nodes[position].dtypes)
        return state.becomes[start:end], state.meaning[start:end]
