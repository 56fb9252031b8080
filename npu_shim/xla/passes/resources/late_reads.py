"""Finds the nodes that see a reference variable's memory after a write, as they do in a session.

Identity forwards a reference variable's own memory, not a copy, and so do Switch, Enter, Reshape and similar ops. A
consumer sees what the memory holds when the consumer runs:

    r:Identity(v)   u:AssignAdd(v, d)   y:Mul(r, 2, ^u)        y has the new value, whenever r ran
"""

from __future__ import annotations

import collections
from typing import Container, Iterable, Mapping

from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.ir.graph import Node, Value

VARIABLES = ("VariableV2", "Variable")
PASSES_ON = ("RefIdentity", "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration")
ROUTES = ("Switch", "Enter")  # pass memory into a branch or a loop
VIEWS = frozenset([  # their output always aliases their first input
    "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape",
    "PlaceholderWithDefault", "Bitcast",
])  # fmt: skip
MEMORY = VIEWS | {"Identity", *ROUTES}
ASKS = ("IsVariableInitialized",)  # take a reference and write nothing


class Writes:
    """The writes that each node of a graph runs after.

    Args:
        written: node that writes to reference variables -> the references that it takes; v1 control flow.
    """

    def __init__(self, written: Mapping[Node, Iterable[Value]]) -> None:
        self._writers: dict[Node, int] = collections.defaultdict(int)  # variable -> bits of its writers
        own = {node: 1 << number for number, node in enumerate(written)}
        for node, references in written.items():
            for reference in references:
                for variable in self.variables(reference):
                    self._writers[variable] |= own[node]
        self._before = _spread(own, ())
        self._this_time = _spread(own, ("NextIteration", "RefNextIteration"))

    def variables(self, value: Value) -> set[Node]:
        """The variables whose memory a tensor may be."""
        # writers also forward their first input
        givers = reached([value.node], lambda node: [
            taken.node for taken in (node.inputs if node.op == "RefMerge" else node.inputs[:1])
        ])  # fmt: skip
        return {node for node in givers if node.op in VARIABLES}

    def is_late(self, sources: Iterable[Node], value: Value, taken: Value) -> bool:
        """Whether a node follows a write that the first reader of its memory does not follow in this iteration.

        Args:
            sources: the nodes that it takes inputs from, or waits for.
            value: input of it that aliases a variable's memory.
            taken: the first tensor that read this memory from the reference.
        """
        bits = before = 0
        for variable in self.variables(value):
            bits |= self._writers[variable]
        for source in sources:
            before |= self._before.get(source, 0)
        return bool(bits & before & ~self._this_time.get(taken.node, 0))


def _spread(own: Mapping[Node, int], stops: Container[str]) -> dict[Node, int]:
    """Maps each node to the bits of the writers that it follows, itself included; ops in `stops` do not propagate."""
    following = dict(own)
    wave = set(own)
    while wave:  # in waves, so that a node that follows many writers propagates once
        reached = set()
        for node in wave:
            for user in () if node.op in stops else node.users():
                if following[node] & ~following.get(user, 0):
                    following[user] = following.get(user, 0) | following[node]
                    reached.add(user)
        wave = reached
    return following
