"""Finds the nodes of a GraphDef that run on one side of a tf.cond only: Switch opens a branch, Merge closes it.

    s = Switch(x, p)   a = Exp(s:1)   m = Merge(s:0, a)      a is in branch (p, 1), s and m are in none

Source: TensorFlow's v1 control flow, in which a node runs when all of its inputs are alive, and a Merge when one is.
"""

from __future__ import annotations

import collections
from typing import Any, Container, Tuple

from npu_shim.rewriter.graph.arguments import controls, data, output_of, source_of

SWITCHES = ("Switch", "RefSwitch")
MERGES = ("Merge", "RefMerge")
Branch = Tuple[str, int]  # the tensor that decides, and the side: 0 or 1
NONE: frozenset[Branch] = frozenset()


class Branches:
    """The branches of a graph's nodes.

    Attributes:
        nodes: name -> NodeDef in topological order (except for the edges to a loop's next iteration).
        consumers: name -> list of the names of the nodes that have it as an input.
        of: name -> frozenset of (predicate, 0 or 1), the branches that a node is in; the predicate is a tensor's name.
        fed: names of nodes that may be fed: their value is then not what they compute.
    """

    def __init__(self, graph_def: Any, fed: Container[str] = frozenset()) -> None:
        self.fed = fed
        self.nodes = topological_order({node.name: node for node in graph_def.node})
        self.consumers = collections.defaultdict(list)
        self.of: dict[str, frozenset[Branch]] = {}
        for name, node in self.nodes.items():
            for source in dict.fromkeys(map(source_of, node.input)):
                self.consumers[source].append(name)
            self.of[name] = self._branches(node)

    def predicate(self, switch: Any) -> str:
        """The tensor that decides a Switch, behind any Identity nodes that are not fed."""
        text = switch.input[1]
        while self.nodes[source_of(text)].op == "Identity" and source_of(text) not in self.fed:
            text = self.nodes[source_of(text)].input[0]
        return str(text)

    def along(self, text: str) -> frozenset[Branch]:
        """The branches that the tensor or control edge `text` is in."""
        source = self.nodes[source_of(text)]
        if source.op not in SWITCHES or text[0] == "^" or self.nodes[source_of(source.input[1])].op == "LoopCond":
            return self.of.get(source.name, NONE)
        return self.of[source.name] | {(self.predicate(source), output_of(text)[1])}

    def rounds(self, predicate: str) -> dict[str, int]:
        """Maps each node to how many times its path has left `predicate`'s branches.

        Nodes with the same count can become one node: no path between them passes through other nodes.
        """
        rounds: dict[str, int] = {}
        inside = {name for name, branches in self.of.items() if any(branch[0] == predicate for branch in branches)}
        for name, node in self.nodes.items():
            sources = [source for source in map(source_of, node.input) if source in rounds]
            rounds[name] = max([rounds[s] + (s in inside and name not in inside) for s in sources] or [0])
        return rounds

    def _branches(self, node: Any) -> frozenset[Branch]:
        if node.op not in MERGES:
            return frozenset().union(*map(self.along, node.input))
        values = [self.along(text) for text in data(node) if source_of(text) in self.of]
        waits = [self.along(text) for text in controls(node)]
        return frozenset.intersection(*values).union(*waits) if values else NONE


def topological_order(nodes: dict[str, Any]) -> dict[str, Any]:
    """Topological order of the nodes, less those of a cycle; loops are cut at their NextIteration."""
    waits, consumers = {}, collections.defaultdict(list)
    for name, node in nodes.items():
        sources = set(map(source_of, node.input))
        if node.op in MERGES:
            sources = {source for source in sources if nodes[source].op not in ("NextIteration", "RefNextIteration")}
        waits[name] = len(sources)
        for source in sources:
            consumers[source].append(name)
    ready = collections.deque(name for name, count in waits.items() if not count)
    ordered = {}
    while ready:
        name = ready.popleft()
        ordered[name] = nodes[name]
        for consumer in consumers[name]:
            waits[consumer] -= 1
            if not waits[consumer]:
                ready.append(consumer)
    return ordered
