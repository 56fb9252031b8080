"""What loops take although it waits for them: what `tf.control_dependencies` gives to a gradient's counters.

A gradient that is made in a block of control dependencies gives the loop behind it a counter and Stacks. Those wait for
what the block names, which may wait for the loop: a session begins such a loop without them. A constant is the same
whenever it is made, so it is made before the loop here, and what else takes it waits in its place. Within the loop the
block's tensor is entered only to be waited for; it is not entered then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Collection, Mapping

from npu_shim.step.frames import ENTERS
from npu_shim.step.graph import Node
from npu_shim.step.order import in_order, users_of

CONSTANT = frozenset(["Const", "Stack", "StackV2"])


@dataclass(frozen=True)
class Units:
    """The units of one frame.

    Attributes:
        before: unit -> the units that it follows; `released` changes it.
        loops: loop -> names of its nodes.
        nodes: name -> Node; a unit that is a node has its name.
        users: name of a node -> names of the nodes that take an output of it.
        is_timed: whether a node does something else at another time.
    """

    before: dict[str, set[str]]
    loops: Mapping[str, Collection[str]]
    nodes: Mapping[str, Node]
    users: Mapping[str, Collection[str]]
    is_timed: Callable[[Node], bool]

    def released(self) -> set[str]:
        """Takes from loops that wait for themselves what they need not wait for; returns Enters that give nothing."""
        entered = set[str]()
        left = waiting(self.before) if self.loops else ()
        while left:
            caught = [loop for loop in self.loops if loop in left]
            constants = {name for loop in caught for name in self._constants(loop) if self.before[name] & left}
            enters = {name for loop in caught for name in self._only_waited_for(loop, left)} - entered
            if not constants and not enters:
                break
            self._make_early(constants)
            entered |= enters
            for loop in caught:
                self.before[loop] -= self._entered_by(loop, enters)
            left = waiting(self.before)
        return entered

    def _constants(self, unit: str) -> set[str]:
        """The constants that a unit follows, directly or through others."""
        chosen, pending = set[str](), [unit]
        while pending:
            new = {name for name in self.before[pending.pop()] if name in self.nodes} - chosen
            new = {name for name in new if self.nodes[name].op in CONSTANT}
            chosen |= new
            pending += new
        return chosen

    def _make_early(self, constants: set[str]) -> None:
        for unit, sources in self.before.items():
            if unit not in self.loops and unit not in constants:
                sources.update(*(self.before[name] for name in sources & constants))
        for name in constants:
            self.before[name] = {source for source, _ in self.nodes[name].inputs} & self.before.keys()

    def _only_waited_for(self, loop: str, left: set[str]) -> list[str]:
        """The Enters of a loop that nothing computes with, and for which nothing waits whose time matters."""
        own = [self.nodes[name] for name in self.loops[loop]]
        enters = [node.name for node in own if node.op in ENTERS and node.inputs[0][0] in left]
        return [name for name in enters if not self._is_computed_with(name) and not self._is_timed_behind(loop, name)]

    def _is_computed_with(self, name: str) -> bool:
        users = self.users.get(name, ())
        return any(self.nodes[user].op != "Identity" or self._is_computed_with(user) for user in users)

    def _is_timed_behind(self, loop: str, name: str) -> bool:
        own, seen = [self.nodes[member] for member in self.loops[loop]], {name}
        size = 0
        while size < len(seen):
            size = len(seen)
            seen.update(node.name for node in own if not seen.isdisjoint(node.sources()))
        return any(self.is_timed(self.nodes[member]) for member in seen)

    def _entered_by(self, loop: str, enters: set[str]) -> set[str]:
        """What only these Enters of a loop take."""
        inside = set(self.loops[loop])
        taken = {source for name in enters & inside for source in self.nodes[name].sources()}
        return taken.difference(*(set(self.nodes[name].sources()) for name in inside - enters))


def waiting(before: Mapping[str, set[str]]) -> set[str]:
    """The units that wait for what waits for them, and what follows these."""
    return set(before).difference(in_order(before, users_of(before)))
