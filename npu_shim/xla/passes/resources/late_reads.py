"""Finds the nodes that see a reference variable's memory after a write, as they do in a session.

Identity forwards a reference variable's own memory, not a copy, and so do Switch, Enter, Reshape and similar ops. A
consumer sees what the memory holds when the consumer runs:

    r:Identity(v)   u:AssignAdd(v, d)   y:Mul(r, 2, ^u)        y has the new value, whenever r ran
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, Mapping

from npu_shim.rewriter.graph.arguments import source_of

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
        nodes: name -> NodeDef, v1 control flow.
        references: function from a node to the numbers of its reference inputs.
    """

    def __init__(self, nodes: Mapping[str, Any], references: Callable[[Any], Iterable[int]]) -> None:
        self._nodes = nodes
        self._writers: dict[str, int] = collections.defaultdict(int)  # variable -> bits of its writers
        own: dict[str, int] = {}
        for name, node in nodes.items():
            if node.op in PASSES_ON or node.op in ASKS:
                continue
            for number in references(node):
                bit = own.setdefault(name, 1 << len(own))
                for variable in self.variables(node.input[number]):
                    self._writers[variable] |= bit
        self._consumers = collections.defaultdict(list)
        for name, node in nodes.items():
            for source in set(map(source_of, node.input)):
                self._consumers[source].append(name)
        self._before = self._spread(own, lambda node: False)
        self._this_time = self._spread(own, lambda node: node.op in ("NextIteration", "RefNextIteration"))

    def variables(self, text: str) -> set[str]:
        """Names of the variables whose memory a tensor may be."""
        pending, seen, found = [source_of(text)], set(), set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self._nodes[name]
            if node.op in VARIABLES:
                found.add(name)
            elif node.op == "RefMerge":
                pending += [source_of(each) for each in node.input if each[0] != "^"]
            elif node.input and node.input[0][0] != "^":
                pending.append(source_of(node.input[0]))  # writers also forward their first input
        return found

    def is_late(self, inputs: Iterable[str], text: str, taken: str) -> bool:
        """Whether a node follows a write that the first reader of its memory does not follow in this iteration.

        Args:
            inputs: of the node.
            text: input tensor that aliases a variable's memory.
            taken: the first tensor that read this memory from the reference.
        """
        bits = 0
        for variable in self.variables(text):
            bits |= self._writers[variable]
        before = 0
        for source in map(source_of, inputs):
            before |= self._before.get(source, 0)
        return bool(bits & before & ~self._this_time.get(source_of(taken), 0))

    def _spread(self, own: dict[str, int], stops: Callable[[Any], bool]) -> dict[str, int]:
        """Maps each node to the bits of the writers it follows, itself included; `stops` nodes do not propagate."""
        found = dict(own)
        wave = set(own)
        while wave:  # in waves, so that a node that follows many writers propagates once
            reached = set()
            for name in wave:
                for consumer in () if stops(self._nodes[name]) else self._consumers[name]:
                    if found[name] & ~found.get(consumer, 0):
                        found[consumer] = found.get(consumer, 0) | found[name]
                        reached.add(consumer)
            wave = reached
        return found
