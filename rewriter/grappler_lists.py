"""TensorLists as profile grappler sees them: which ops share a list, and which writers feed which readers.

A list's handle has the dtype variant and runs through other ops too (Enter, Switch, a loop's body). All list ops that
one handle may reach have one dtype; where a handle leaves the graph that dtype is float32.

    TensorListReserve -> Enter -> TensorListSetItem -> ... -> TensorListStack       one cluster; SetItem feeds Stack

Instead of an edge from every writer to every reader, which grows as their product, walks follow the handle itself: a
"wire" is a vertex for each piece of handle.
"""

from typing import Dict, List, Mapping, NamedTuple, Tuple

from .dtypes import FLOAT32, NUMBERS
from .graph_view import GraphView, Node
from .grappler_graph import Mark, first_slots

VARIANT = NUMBERS["variant"]
READERS = frozenset({
    "TensorListConcat", "TensorListConcatV2", "TensorListGather", "TensorListGetItem", "TensorListPopBack",
    "TensorListStack",
})  # fmt: skip
WRITERS = frozenset({
    "TensorListFromTensor", "TensorListPushBack", "TensorListPushBackBatch", "TensorListScatter", "TensorListScatterV2",
    "TensorListScatterIntoExistingList", "TensorListSetItem", "TensorListSplit",
})  # fmt: skip
# where a handle comes from or goes to a place that is not seen; so does a call of any library function
BORDERS = frozenset({
    "_Arg", "_Retval", "OptionalFromValue", "OptionalGetValue", "PartitionedCall", "StatefulPartitionedCall",
    "Placeholder",
})  # fmt: skip

Piece = Tuple[int, int]  # node position, slot or ~dtype: what governs a port that carries a handle


class Cluster(NamedTuple):
    """List ops that must have one dtype: their float32 slots; those that stay float32 because of a border."""

    members: Tuple[int, ...]
    denied: Tuple[int, ...]


class TensorLists(NamedTuple):
    """All lists of a graph: clusters, wires with the positions of their nodes, and the edges along wires."""

    clusters: Tuple[Cluster, ...]
    wires: Mapping[int, int]
    edges: Tuple[Tuple[int, int], ...]


def find_lists(view: GraphView, marks: List[Mark]) -> TensorLists:
    """Finds the lists with float32 elements, in time linear in the number of ops."""
    lists = {p: _float32_slot(node) for p, node in enumerate(view.nodes) if "TensorList" in node.op}
    first = first_slots(view)
    members = {p: first[p] + slot for p, slot in lists.items() if slot >= 0}
    if not members:
        return TensorLists((), {}, ())
    handles = _handles(view)
    clusters = tuple(_cluster(view, marks, members, group) for group in _groups(handles, members))
    count = first[-1] + len(view.nodes[-1].dtypes)
    pieces = sorted({piece for edge in handles for piece in edge if marks[piece[0]].kept is None})
    wire = {piece: count + number for number, piece in enumerate(pieces)}
    edges = [(wire[a], wire[b]) for a, b in handles if a in wire and b in wire]
    for piece, vertex in wire.items():
        op = view.nodes[piece[0]].op
        if piece[0] in members and op in WRITERS:
            edges.append((members[piece[0]], vertex))
        elif piece[0] in members and op in READERS:
            edges.append((vertex, members[piece[0]]))
    return TensorLists(clusters, {vertex: piece[0] for piece, vertex in wire.items()}, tuple(edges))


def _float32_slot(node: Node) -> int:
    return next((k for k, dtype in enumerate(node.dtypes) if dtype == FLOAT32), -1)


def _handles(view: GraphView) -> List[Tuple[Piece, Piece]]:
    """(what gives a handle, what takes it) for all edges that carry one."""
    found = []
    for position, node in enumerate(view.nodes):
        for number, port in enumerate(node.inputs):
            if node.input_dtype(number) == VARIANT:
                source = view.nodes[port.node].layout.outputs[port.port]
                found.append(((port.node, source), (position, node.layout.inputs[number])))
    return found


def _groups(handles: List[Tuple[Piece, Piece]], members: Dict[int, int]) -> List[List[int]]:
    """Node positions that a handle connects, for each group of pieces with a list op in it."""
    beside: Dict[Piece, List[Piece]] = {}
    for a, b in handles:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
    groups, seen = [], set()
    for start in beside:
        if start[0] not in members or start in seen:
            continue
        group = [start]
        seen.add(start)
        for piece in group:  # grows while it is read
            new = [other for other in beside[piece] if other not in seen]
            seen.update(new)
            group += dict.fromkeys(new)
        groups.append([position for position, _ in group])
    return groups


def _cluster(view: GraphView, marks: List[Mark], members: Dict[int, int], positions: List[int]) -> Cluster:
    found = sorted(set(positions) & set(members))
    free = [p for p in found if marks[p].kept is None]
    unsafe = len(free) < len(found) or any(_is_border(view, p) for p in positions if p not in members)
    return Cluster(tuple(members[p] for p in found), tuple(members[p] for p in free) if unsafe else ())


def _is_border(view: GraphView, position: int) -> bool:
    op = view.nodes[position].op
    return op in BORDERS or op in view.functions
