"""Slots that must agree although no op says so: the variables of loops, and the readers and writers of a container.

    Enter -> Merge -> Switch -> ... -> NextIteration -> Merge        one loop variable, and all four ops in it
    TensorArrayV3 -> Enter -> TensorArrayWriteV3, TensorArrayReadV3  one container, its gradient arrays included
    StackV2 -> Enter -> StackPushV2 ... StackPopV2                   one container
    TensorListReserve -> ... TensorListSetItem -> TensorListStack    one container, see lists.py

A tie is decided by what flows into it: the loop's initial value and next value, or what is written.
"""

from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..tables.dtypes import NUMBERS
from .graph_view import GraphView, Port
from .lists import LISTS, tensor_lists
from .walks import reached

Feeder = Tuple[int, int]  # node position, data input number
NodeSlot = Tuple[int, int]  # node position, position of the slot in its layout

NEXT = frozenset({"NextIteration"})
INTO_BODY = frozenset({"Identity", "Switch"})  # ops between a loop's Merge and what its body reads
HANDS_ON = INTO_BODY | NEXT | {"Enter", "Merge"}
ADDS = frozenset({"Add", "AddV2", "AddN", "Sub"})
COMPARES = frozenset({"Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"})
HANDED = INTO_BODY | {"Exit"} | COMPARES  # readers of a loop variable that have its number, or compare it
# ops that hand a container's handle on
CARRIERS = frozenset({"Enter", "Exit", "Identity", "Switch", "_SwitchN", "Merge", "NextIteration"})
PUSH, POP = "StackPushV2", "StackPopV2"
WRITE = "TensorArrayWriteV3"
MEASURES = frozenset({"TensorArraySizeV3", "TensorArrayCloseV3", "StackCloseV2"})  # whatever is in the container
RESOURCE = NUMBERS["resource"]
# ops that make a container
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
CONTAINERS = frozenset(MEMBERS) | frozenset(LISTS)


class Tie(NamedTuple):
    """Slots that have one dtype.

    Attributes:
        members: the slots, sorted.
        feeders: the data inputs that decide it. Writers into gradient arrays are none: they follow the array's dtype.
        adders: positions of the ops that only add to a loop variable, whose small addends low precision would lose, and
            of those that hand the sum on.
        unchanged: whether it is a loop variable that goes round as it came in, such as a weight that the body reads.
        gradients: positions of the members that work on a gradient array of a TensorArray.
    """

    members: Tuple[NodeSlot, ...]
    feeders: Tuple[Feeder, ...]
    adders: Tuple[int, ...] = ()
    unchanged: bool = False
    gradients: FrozenSet[int] = frozenset()


def find_ties(view: GraphView) -> Tuple[Tie, ...]:
    """Finds all ties of a graph; container ops whose container is made elsewhere are in none."""
    return (*_joined(view, _loop_variables(view)), *containers(view), *_lists(view))


def _loop_variables(view: GraphView) -> Iterable[Tie]:
    nodes = view.nodes
    switches: Dict[int, List[int]] = {}  # position of a Merge -> its Switch
    for position in view.of_ops(["Switch"]):
        switches.setdefault(nodes[position].inputs[0].node, []).append(position)
    for position in view.of_ops(["Merge"]):
        node = nodes[position]
        if not any(nodes[port.node].op in NEXT for port in node.inputs):
            continue
        around = [port.node for port in node.inputs if nodes[port.node].op in ("Enter", *NEXT)]
        paths = [_path(view, nodes[p].inputs[0]) for p in around if nodes[p].op in NEXT]
        unchanged = all(path[-1] == position for path in paths)
        members = {position, *around, *switches.get(position, ()), *(p for path in paths if unchanged for p in path)}
        adders = tuple(p for path in paths if _adds_to(view, path[-1], position) for p in path)
        yield Tie(tuple((p, 0) for p in sorted(members)), tuple((p, 0) for p in around), adders, unchanged)


def _joined(view: GraphView, ties: Iterable[Tie]) -> Iterable[Tie]:
    """Joins loop variables that have an op in common, as where TensorFlow has made one of two equal NextIterations.

    No Cast may stand between a NextIteration and its Merge, so both have one dtype.
    """
    groups: Dict[NodeSlot, List[Tie]] = {}
    for tie in ties:
        sharing = {id(groups[member]): groups[member] for member in tie.members if member in groups}
        group = [tie, *(other for others in sharing.values() for other in others)]
        groups.update(dict.fromkeys((member for other in group for member in other.members), group))
    for group in {id(group): group for group in groups.values()}.values():
        if len(group) == 1:
            yield group[0]
            continue
        members = sorted({member for tie in group for member in tie.members})
        feeders = _by_name(view, {feeder for tie in group for feeder in tie.feeders})
        adders = tuple(sorted({position for tie in group for position in tie.adders}))
        yield Tie(tuple(members), feeders, adders, all(tie.unchanged for tie in group))


def limits(view: GraphView, comparisons: Iterable[int]) -> List[int]:
    """Positions of the ops that hand on what some comparisons compare, back to what gives it."""

    def givers(position: int) -> List[int]:
        return [port.node for port in view.nodes[position].inputs] if view.nodes[position].op in HANDS_ON else []

    compared = [port.node for position in comparisons for port in view.nodes[position].inputs]
    return [position for position in reached(compared, givers) if view.nodes[position].op in HANDS_ON]


def readers(view: GraphView, tie: Tie) -> List[int]:
    """Positions of the ops that compare a loop variable, or hand it on into the body, or out of the loop."""

    def takers(position: int) -> List[int]:
        if view.nodes[position].op in COMPARES:
            return []
        return [reader for reader in view.consumers()[position] if view.nodes[reader].op in HANDED]

    members = {position for position, _ in tie.members}
    return [position for position in reached(members, takers) if position not in members]


def _adds_to(view: GraphView, position: int, merge: int) -> bool:
    """Whether what a node computes is a loop's present value plus something."""
    node = view.nodes[position]
    if node.op not in ADDS:
        return False
    return any(_path(view, read)[-1] == merge for read in node.inputs)


def _path(view: GraphView, port: Port) -> List[int]:
    """Positions of the ops that hand a loop variable into its body, back from what is read to what they begin at."""
    path = [port.node]
    while view.nodes[path[-1]].op in INTO_BODY and view.nodes[path[-1]].inputs and len(path) <= len(view.nodes):
        path.append(view.nodes[path[-1]].inputs[0].node)
    return path


def _lists(view: GraphView) -> Iterable[Tie]:
    for ops in tensor_lists(view):
        members = tuple((position, 0) for position, _ in ops)
        yield Tie(members, _by_name(view, [(position, number) for position, number in ops if number is not None]))


def _by_name(view: GraphView, feeders: Iterable[Feeder]) -> Tuple[Feeder, ...]:
    """Feeders in an order that is not that of the nodes: of several causes of a decision the first is told."""
    return tuple(sorted(feeders, key=lambda feeder: (view.nodes[feeder[0]].name, feeder[1])))


def containers(view: GraphView) -> Iterable[Tie]:
    """Finds the ties of TensorArrays and Stacks, whose ops take the handle of their container."""
    members: Dict[int, List[NodeSlot]] = {}
    feeders: Dict[int, List[Feeder]] = {}
    gradients: Dict[int, Set[int]] = {}
    pushed = _pushed_handles(view)
    for position in view.of_ops(MEMBERS):
        node = view.nodes[position]
        if node.dtypes[0] == RESOURCE:
            continue
        maker, gradient = _maker(view, position, pushed)
        if maker is None:
            continue
        members.setdefault(maker, []).append((position, 0))
        written = MEMBERS[node.op]
        if gradient:
            gradients.setdefault(maker, set()).add(position)
        elif written is not None:
            feeders.setdefault(maker, []).append((position, written))
    out_of_sight = set(_handed_out(view, pushed)) if members else ()
    for maker in members:
        if maker in out_of_sight:
            continue
        grads = frozenset(gradients.get(maker, ()))
        yield Tie(tuple(sorted(members[maker])), _by_name(view, feeders.get(maker, ())), gradients=grads)


def _pushed_handles(view: GraphView) -> Dict[int, int]:
    """Position of a stack of handles -> position of what gave the handle."""
    pushed: Dict[int, int] = {}
    for position in view.of_ops([PUSH]):
        if view.nodes[position].dtypes[0] == RESOURCE:
            stack, _ = _maker(view, position, pushed)
            if stack is not None:
                pushed[stack] = view.nodes[position].inputs[1].node
    return pushed


def _handed_out(view: GraphView, pushed: Mapping[int, int]) -> Iterable[Optional[int]]:
    """Makers of containers whose handle an op takes that is not known here, such as a call that is left as written."""
    for node in view.nodes:
        if node.op in MEMBERS or node.op in CARRIERS or node.op in MEASURES or node.op == GRADIENT:
            continue
        for number, port in enumerate(node.inputs):
            source = view.nodes[port.node].op
            if node.input_dtype(number) == RESOURCE and (source in CARRIERS or source in MEMBERS or source == GRADIENT):
                yield _maker(view, port.node, pushed)[0]


def _maker(view: GraphView, member: int, pushed: Mapping[int, int]) -> Tuple[Optional[int], bool]:
    """The op that made the container of a member, and whether the member belongs to a gradient array of it.

    In the gradient of a nested loop the handle of an array comes off a stack: `pushed` has what was put there.
    """
    gradient = False
    seen = set()
    position: Optional[int] = member
    while position is not None and view.nodes[position].op not in MAKERS:
        node = view.nodes[position]
        if position in seen or not node.inputs:
            return None, gradient
        seen.add(position)
        gradient = gradient or node.op == GRADIENT
        if node.op == POP and position != member:
            stack, _ = _maker(view, position, {})
            position = None if stack is None else pushed.get(stack)
        elif position == member or node.op in CARRIERS or node.op == GRADIENT:
            position = node.inputs[0].node
        else:
            return None, gradient
    return position, gradient
