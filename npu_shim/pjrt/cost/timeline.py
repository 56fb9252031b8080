"""A compiled step on a card and its links, as it is scheduled: how long it takes at least, with what travels meanwhile.

    kernels  | a | b | c |....| d |      .... waits for what was started behind a and is awaited in front of d
    link         |---- all-reduce ----|

One kernel runs at a time, and takes as long as its bytes or its products do at least; one collective travels at a time.
A loop's steps all take what its first one does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Iterable, Mapping

from npu_shim.pjrt.cost import collectives, links, trips
from npu_shim.pjrt.cost.hlo import Computation, Instruction, Module
from npu_shim.pjrt.cost.links import Links

LISTED = re.compile(r"replica_groups=\{\{([0-9,]*)\}")  # {{0,1,2,3},{4,5,6,7}}
SHAPED = re.compile(r"replica_groups=\[\d+,(\d+)\]")  # [2,4]<=[8]: two groups of four


@dataclass
class Travelling:
    """What one kind of collective sends over a card's link in a step: bytes, and seconds that these take at least."""

    sent: float = 0.0
    seconds: float = 0.0


@dataclass
class Timeline:
    """A step's time.

    Args:
        module: hlo.Module, as it is scheduled.
        lasting: name of a kernel's instruction -> seconds that it takes at least.
        links: of the card; None for exchanges that take no time.
        count: cards that run the step together, which a collective that names none is of.

    Attributes:
        seconds: of the step, at least.
        travelling: kind of collective -> Travelling.
    """

    module: Module
    lasting: Mapping[str, float]
    links: Links | None
    count: int
    seconds: float = 0.0
    travelling: dict[str, Travelling] = field(default_factory=lambda: defaultdict(Travelling))
    _free: float = 0.0  # when the link is
    _ends: dict[str, float] = field(default_factory=dict)  # name of what starts a collective -> when it has come

    def __post_init__(self) -> None:
        self._walk(self.module.computations[self.module.entry], 1)

    def _walk(self, computation: Computation, times: int) -> None:
        awaited = {one.operands[0]: one for one in computation.instructions.values()
                   if one.code.endswith(collectives.DONE) and one.operands}  # fmt: skip
        for instruction in computation.instructions.values():
            kind = collectives.kind_of(instruction)
            if kind:
                self._start(kind, instruction, awaited.get(instruction.name), times)
            elif instruction.code.endswith(collectives.DONE):
                self.seconds = max(self.seconds, self._ends.pop(instruction.operands[0], 0.0))
            elif instruction.code == "while":
                self._loop(computation, instruction, times)
            elif instruction.code == "conditional":
                self._longest([name for part in instruction.called.values() for name in part], times)
            elif instruction.code in ("call", "async-start"):
                self._named((part[0] for part in instruction.called.values()), times)
            else:
                self.seconds += self.lasting.get(instruction.name, 0.0)

    def _named(self, names: Iterable[str], times: int) -> None:
        for name in names:
            self._walk(self.module.computations[name], times)

    def _start(self, kind: str, instruction: Instruction, done: Instruction | None, times: int) -> None:
        group = _size(instruction.attributes) or self.count
        sent = links.sent(kind, sum(shape.bytes for shape in (done or instruction).shapes), group)
        takes = 0.0 if self.links is None else self.links.seconds(sent, group)
        self.travelling[kind].sent += sent * times
        self.travelling[kind].seconds += takes * times
        self._free = max(self.seconds, self._free) + takes
        self._ends[instruction.name] = self._free
        if done is None:
            self.seconds = max(self.seconds, self._ends.pop(instruction.name))

    def _loop(self, computation: Computation, instruction: Instruction, times: int) -> None:
        steps = trips.steps(self.module, computation.name, instruction) or 1
        before = self.seconds
        self._named((instruction.called[part][0] for part in ("condition", "body")), times * steps)
        self.seconds += (self.seconds - before) * (steps - 1)
        self._free = max(self._free, self.seconds)

    def _longest(self, branches: Iterable[str], times: int) -> None:
        """Of a conditional the branch counts that takes longest, and all that they exchange."""
        before, after = self.seconds, self.seconds
        for branch in branches:
            self.seconds = before
            self._named([branch], times)
            after = max(after, self.seconds)
        self.seconds = after


def _size(attributes: str) -> int:
    """Cards of a collective, 0 where it does not say."""
    shaped, listed = SHAPED.search(attributes), LISTED.search(attributes)
    if shaped:
        return int(shaped.group(1))
    return len(listed.group(1).split(",")) if listed and listed.group(1) else 0
