"""When reference variables are read: the trap of casting a value from before a write for a reader from after it.

What Identity gives for a reference variable is the variable's own memory, and so is what Enter, Reshape and their like
make of it. A reader sees what is in there when the reader runs. A Cast in front of it reads when the Cast runs:

    v/read -> Enter -> MatMul (in a loop that assigns v)        a Cast behind v/read would give every iteration v's
    with control_dependencies([assign]): MatMul(v/read, x)      first value

So a reader that runs after a write which its input does not wait for takes the memory as it is, in float32; and so do
all readers of a variable that a loop writes, since TensorFlow's own optimizers take a Cast in a loop for an invariant.
"""

from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Set

from .graph_view import GraphView, waiting_of

# ops whose output may be the memory of their input
SHARES = frozenset(["Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration", "StopGradient", "PreventGradient"])
SHARES |= frozenset(["Reshape", "Squeeze", "ExpandDims", "Snapshot", "CheckNumerics"])


def late_readers(view: GraphView, consumers: Sequence[Sequence[int]]) -> FrozenSet[int]:
    """Positions of the ops that read a variable's memory after a write that the memory's last op does not wait for.

    Args:
        view: the graph.
        consumers: positions of the nodes that read each node's outputs.
    """
    nodes = view.nodes
    writers: Dict[int, int] = {}  # variable -> bits of its writers
    written: Dict[int, int] = {}  # position -> bits of the writers that it runs after, itself included
    for position, node in enumerate(nodes):
        for number in node.layout.ref_inputs:
            variable = _variable(view, node.inputs[number].node)
            if variable is not None and not node.layout.op.startswith("Ref") and node.op != "Identity":
                bit = written.setdefault(position, 1 << len(written))  # an optimizer writes several variables
                writers[variable] = writers.get(variable, 0) | bit
    if not writers:
        return frozenset()
    _spread(written, consumers, waiting_of(nodes))
    late = set()
    for variable, bits in writers.items():
        in_loop = any(nodes[consumer].op == "RefEnter" for consumer in consumers[variable])
        for memory in _memory(view, variable, consumers):
            for reader in consumers[memory]:
                if in_loop or written.get(reader, 0) & bits & ~written.get(memory, 0):
                    late.add(reader)
    return frozenset(late)


def _makes_reference(view: GraphView, position: int) -> bool:
    node = view.nodes[position]
    return bool(node.layout.ref_outputs) and not node.inputs


def _variable(view: GraphView, position: int) -> Optional[int]:
    """The variable behind a reference, through RefEnter, RefSwitch, and ops that hand it on after a write."""
    seen: Set[int] = set()
    while position not in seen:
        seen.add(position)
        if _makes_reference(view, position):
            return position
        node = view.nodes[position]
        if not node.layout.ref_outputs or not node.inputs:
            return None
        position = node.inputs[0].node
    return None


def _spread(written: Dict[int, int], consumers: Sequence[Sequence[int]], waiting: Mapping[int, List[int]]) -> None:
    """Whatever runs after a node runs after the writers that the node runs after."""
    wave = set(written)
    while wave:  # in waves, so that what waits for many writers is passed on once
        reached = set()
        for position in wave:
            bits = written[position]
            for consumer in (*consumers[position], *waiting.get(position, ())):
                known = written.get(consumer, 0)
                if bits & ~known:
                    written[consumer] = known | bits
                    reached.add(consumer)
        wave = reached


def _memory(view: GraphView, variable: int, consumers: Sequence[Sequence[int]]) -> Set[int]:
    """Positions of the ops whose output is a variable's memory, and no reference any more."""
    found: Set[int] = set()
    waiting = [variable]
    while waiting:
        for consumer in consumers[waiting.pop()]:
            node = view.nodes[consumer]
            if consumer not in found and (node.op in SHARES or node.op.startswith("Ref")):
                found.add(consumer)
                waiting.append(consumer)
    return {position for position in found if not view.nodes[position].layout.ref_outputs}
