"""Which nodes see a reference variable's memory after a write: what a session does with aliases, told from the graph.

Identity gives a reference variable's own memory, not a copy, and so do Switch, Enter, Reshape and their like. Who takes
it sees what is in there when it runs:

    r:Identity(v)   u:AssignAdd(v, d)   y:Mul(r, 2, ^u)        y has the new value, whenever r ran
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, Mapping

from npu_shim.session.clusters.pruning import source_of

VARIABLES = ("VariableV2", "Variable")
PASSES_ON = ("RefIdentity", "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration")
ROUTES = ("Switch", "Enter")  # bring memory into a branch or a loop
VIEWS = frozenset([  # their result is always their first input's memory, seen otherwise
    "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape",
    "PlaceholderWithDefault", "Bitcast",
])  # fmt: skip
MEMORY = VIEWS | {"Identity", *ROUTES}
ASKS = ("IsVariableInitialized",)  # take a reference and leave the variable as it is


class Writes:
    """The writes that each node of a graph runs after.

    Args:
        nodes: name -> NodeDef, v1 control flow.
        references: function of a node to the numbers of its inputs that are taken as references.
    """

    def __init__(self, nodes: Mapping[str, Any], references: Callable[[Any], Iterable[int]]) -> None:
        self._nodes = nodes
        self._writers: dict[str, int] = collections.defaultdict(int)  # variable -> bits of the nodes that write to it
        own: dict[str, int] = {}
        for name, node in nodes.items():
            if node.op in PASSES_ON or node.op in ASKS:
                continue
            for number in references(node):
                bit = own.setdefault(name, 1 << len(own))
                for variable in self.variables(node.input[number]):
                    self._writers[variable] |= bit
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
                pending.append(source_of(node.input[0]))  # writers pass their first input on as well
        return found

    def is_late(self, inputs: Iterable[str], text: str, taken: str) -> bool:
        """Whether a node runs after a write that its memory's first reader does not run after, in this iteration.

        Args:
            inputs: of the node.
            text: tensor of memory that it takes.
            taken: tensor of the same memory that was taken from the reference.
        """
        bits = 0
        for variable in self.variables(text):
            bits |= self._writers[variable]
        before = 0
        for source in map(source_of, inputs):
            before |= self._before.get(source, 0)
        return bool(bits & before & ~self._this_time.get(source_of(taken), 0))

    def _spread(self, own: dict[str, int], stops: Callable[[Any], bool]) -> dict[str, int]:
        """Name -> bits of the writers that a node runs after, itself included; nothing passes where `stops`."""
        consumers = collections.defaultdict(list)
        for name, node in self._nodes.items():
            for source in set(map(source_of, node.input)):
                consumers[source].append(name)
        found = dict(own)
        wave = set(own)
        while wave:  # in waves, so that what waits for many writers is passed on once
            reached = set()
            for name in wave:
                for consumer in () if stops(self._nodes[name]) else consumers[name]:
                    if found[name] & ~found.get(consumer, 0):
                        found[consumer] = found.get(consumer, 0) | found[name]
                        reached.add(consumer)
            wave = reached
        return found
