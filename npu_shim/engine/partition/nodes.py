"""The nodes of a run, as far as the cut depends on them, and walks over them. No TensorFlow.

They are no graph of the IR, on purpose: a session asks for each run anew, of a graph that grows between runs. So a node
is described once, by what never changes of it, and a run is a choice of descriptions without what is fed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Callable, Collection, Iterable, Mapping

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graph.walks import reached


@dataclass(frozen=True)
class Node:
    """A node's properties that the cut depends on.

    Attributes:
        name, op: as in the GraphDef.
        inputs: as in the GraphDef, without the tensors that the user feeds.
        host: why the session must run it, None where the program can.
        writes: the variables that it writes to.
        variable: whether it is a variable or takes one.
        learned: whether its result depends on a variable's value.
        product: whether it is a matrix product, a convolution or a recurrent network.
        computes: how many ops compute in floating point: itself, or those of the functions that it calls.
        repeats: whether the same inputs give the same result, so that it may run in two places.
        handle: whether it returns the handle of a resource that lives in the session.
        report: whether it is a print or an assertion.
        forwards: whether a report's result is its first input.
        floating: whether all of its results are floating-point numbers.
        asserts: whether it ends a run where its first input is false.
        checks: whether it passes on its input, or ends a run where that is not finite.
        first: its first input, which `inputs` lacks if the user feeds it; "" for none.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    host: str | None = None
    writes: frozenset[str] = frozenset()
    variable: bool = False
    learned: bool = False
    product: bool = False
    computes: int = 0
    repeats: bool = True
    handle: bool = False
    report: bool = False
    forwards: bool = False
    floating: bool = False
    asserts: bool = False
    checks: bool = False
    first: str = ""

    @property
    def essential(self) -> bool:
        """Whether it always belongs to the program."""
        return self.product or bool(self.writes)

    @property
    def shared(self) -> bool:
        """Whether it may run in several places."""
        return self.repeats or self.handle


def upstream(nodes: Mapping[str, Node], names: Iterable[str]) -> set[str]:
    """Returns the names of nodes and of all that they need.

    Args:
        nodes: name -> Node.
        names: of some of them.
    """
    return upstream_by(names, lambda name: nodes[name].inputs)


def upstream_by(names: Iterable[str], inputs_of: Callable[[str], Iterable[str]]) -> set[str]:
    """As `upstream`, for other inputs than all: `inputs_of` is a function of a node's name."""
    return set(reached(names, lambda name: map(source_of, inputs_of(name))))


def downstream(nodes: Mapping[str, Node], names: Collection[str], start: bool = True) -> set[str]:
    """Returns the names of all nodes downstream of `names`, with these, or only those that another one reaches."""
    consumers = consumers_of(nodes)
    starts = names if start else [consumer for name in names for consumer in consumers.get(name, ())]
    return set(reached(starts, lambda name: consumers.get(name, ())))


def consumers_of(nodes: Mapping[str, Node], controls: bool = True) -> dict[str, list[str]]:
    """Returns name -> names of the nodes that take its results, or, for `controls`, wait for it."""
    consumers: dict[str, list[str]] = {}
    for node in nodes.values():
        for source in {source_of(text) for text in node.inputs if controls or text[0] != "^"}:
            consumers.setdefault(source, []).append(node.name)
    return consumers


def depths(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Returns name -> number of version 1 loops and conditionals around a node."""
    consumers = consumers_of(nodes)
    depth = {name: 0 for name, node in nodes.items() if not node.inputs}
    pending = deque(depth)
    while pending:
        name = pending.popleft()
        for consumer in consumers.get(name, ()):
            new = _depth(nodes, consumer, depth)
            if new > depth.get(consumer, -1):
                depth[consumer] = new
                if nodes[consumer].op not in ("NextIteration", "RefNextIteration"):
                    pending.append(consumer)
    return {name: depth.get(name, 0) for name in nodes}


def _depth(nodes: Mapping[str, Node], name: str, known: Mapping[str, int]) -> int:
    """Depth by the inputs whose depth is known; a loop's Switch and Merge have the depth of its Enter.

    Its NextIteration may wait for what a conditional inside of the loop does, through a ControlTrigger.
    """
    op = nodes[name].op.replace("Ref", "")
    sources = [source_of(text) for text in nodes[name].inputs]
    entered = [source for source in sources if "NextIteration" not in nodes[source].op]
    around = max((known.get(source, 0) for source in entered), default=0)
    if op == "Enter":
        return around + 1
    if op == "Exit":
        return max(around - 1, 0)
    if op == "Switch":
        return around + (not any(nodes[source].op == "LoopCond" for source in sources))
    if op == "Merge":
        return max(around - (entered == sources), 0)
    return around
