"""Slots that must agree although no op says so: the variables of loops, and the readers and writers of a container.

    Enter -> Merge -> Switch -> ... -> NextIteration -> Merge        one loop variable: Enter, Merge, NextIteration
    TensorArrayV3 -> Enter -> TensorArrayWriteV3, TensorArrayReadV3  one container, its gradient arrays included
    StackV2 -> Enter -> StackPushV2 ... StackPopV2                   one container

A tie is decided by what flows into it: the loop's initial value and next value, or what is written.
"""

from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .graph_view import GraphView, Node, Port

Feeder = Tuple[int, int]  # node position, data input number
NodeSlot = Tuple[int, int]  # node position, position of the slot in its layout

ENTERS = frozenset({"Enter"})
NEXT = frozenset({"NextIteration"})
ADDS = frozenset({"Add", "AddV2", "AddN", "Sub"})
# ops that hand a container's handle on
CARRIERS = frozenset({"Enter", "Exit", "Identity", "Switch", "Merge", "NextIteration"})
# ops that make a container; TensorList ops hand on a new list for every one that they take
MAKERS = frozenset({"TensorArrayV3", "StackV2"})
GRADIENT = "TensorArrayGradV3"  # makes an array of the dtype of the array whose handle it takes
# container op -> number of the input that it writes (None: it reads, or only knows the dtype)
MEMBERS: Mapping[str, Optional[int]] = {
    "TensorArrayV3": None,
    "TensorArrayReadV3": None,
    "TensorArrayGatherV3": None,
    "TensorArrayConcatV3": None,
    "TensorArrayWriteV3": 2,
    "TensorArrayScatterV3": 2,
    "TensorArraySplitV3": 1,
    "StackV2": None,
    "StackPushV2": 1,
    "StackPopV2": None,
}


class Tie(NamedTuple):
    """Slots that have one dtype.

    Attributes:
        members: the slots, sorted.
        feeders: the data inputs that decide it. Writers into gradient arrays are none: they follow the array's dtype.
        accumulates: whether it is a loop variable that is only added to, whose small addends low precision would lose.
    """

    members: Tuple[NodeSlot, ...]
    feeders: Tuple[Feeder, ...]
    accumulates: bool = False


def find_ties(view: GraphView) -> Tuple[Tie, ...]:
    """Finds all ties of a graph; container ops whose container is made elsewhere are in none."""
    return tuple(_loop_variables(view)) + tuple(_containers(view))


def _loop_variables(view: GraphView) -> Iterable[Tie]:
    nodes = view.nodes
    for position, node in enumerate(nodes):
        if node.op != "Merge" or not any(nodes[port.node].op in NEXT for port in node.inputs):
            continue
        around = [port.node for port in node.inputs if nodes[port.node].op in ENTERS | NEXT]
        members = tuple(sorted((p, 0) for p in [position, *around]))
        added_to = any(_adds_to(view, nodes[p].inputs[0], position) for p in around if nodes[p].op in NEXT)
        yield Tie(members, tuple((p, 0) for p in around), added_to)


def _adds_to(view: GraphView, port: Port, merge: int) -> bool:
    """Whether a loop's next value is its present value plus something."""
    node = view.nodes[port.node]
    if node.op not in ADDS:
        return False
    return any(_carried_from(view, read, frozenset({"Identity", "Switch"})) == merge for read in node.inputs)


def _carried_from(view: GraphView, port: Port, carriers: FrozenSet[str]) -> int:
    """Position of the node behind a chain of carriers."""
    position = port.node
    while view.nodes[position].op in carriers and view.nodes[position].inputs:
        position = view.nodes[position].inputs[0].node
    return position


def _containers(view: GraphView) -> Iterable[Tie]:
    members: Dict[int, List[NodeSlot]] = {}
    feeders: Dict[int, List[Feeder]] = {}
    for position, node in enumerate(view.nodes):
        if node.op not in MEMBERS:
            continue
        maker, gradient = _maker(view, position, node)
        if maker is None:
            continue
        members.setdefault(maker, []).append((position, 0))
        written = MEMBERS[node.op]
        if written is not None and not gradient:
            feeders.setdefault(maker, []).append((position, written))
    for maker in members:
        yield Tie(tuple(sorted(members[maker])), tuple(feeders.get(maker, ())))


def _maker(view: GraphView, position: int, node: Node) -> Tuple[Optional[int], bool]:
    """The op that made the container of a member, and whether the member belongs to a gradient array of it."""
    gradient = False
    seen = set()
    while node.op not in MAKERS:
        if position in seen or not node.inputs:
            return None, gradient
        seen.add(position)
        gradient = gradient or node.op == GRADIENT
        if node.op not in CARRIERS and node.op != GRADIENT and node.op not in MEMBERS:
            return None, gradient
        position = node.inputs[0].node
        node = view.nodes[position]
    return position, gradient
