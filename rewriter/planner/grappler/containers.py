"""Containers for profile grappler: which ops share one, and which writers feed which readers.

A list's handle has dtype variant and passes through other ops too (Enter, Switch, a loop's body). All list ops that
one handle may reach share one dtype, which is float32 if the handle leaves the graph.

    TensorListReserve -> Enter -> TensorListSetItem -> ... -> TensorListStack       one cluster; SetItem feeds Stack

An edge from every writer to every reader would grow as their product. So walks follow the handle itself: a "wire" is a
vertex for each piece of handle. A TensorArray or Stack of TensorFlow 1, which the lists of 1.15 include, is one such
piece and has no borders.
"""

from typing import Dict, List, Mapping, NamedTuple, Tuple

from ...graph.graph_view import GraphView, Node, is_border
from ...graph.ties import MEMBERS, find_ties
from ...tables.dtypes import FLOAT32, NUMBERS
from .graph import Mark, count_slots, first_slots

VARIANT = NUMBERS["variant"]
READERS = frozenset({
    "TensorListConcat", "TensorListConcatV2", "TensorListGather", "TensorListGetItem", "TensorListPopBack",
    "TensorListStack",
})  # fmt: skip
WRITERS = frozenset({
    "TensorListFromTensor", "TensorListPushBack", "TensorListPushBackBatch", "TensorListScatter", "TensorListScatterV2",
    "TensorListScatterIntoExistingList", "TensorListSetItem", "TensorListSplit",
})  # fmt: skip
ARRAY_READERS = ("TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2")
# where a handle enters or leaves the visible graph, as at the border of a function
BORDERS = frozenset({
    "_Arg", "_Retval", "OptionalFromValue", "OptionalGetValue", "PartitionedCall", "StatefulPartitionedCall",
    "Placeholder",
})  # fmt: skip

Piece = Tuple[int, int]  # node position, slot or ~dtype: what governs a port that carries a handle


class Cluster(NamedTuple):
    """List ops that must share one dtype: their float32 slots, and those denied because of a border."""

    members: Tuple[int, ...]
    denied: Tuple[int, ...]


class Containers(NamedTuple):
    """All containers of a graph: clusters, wires with the positions of their nodes, and the edges along wires."""

    clusters: Tuple[Cluster, ...]
    wires: Mapping[int, int]
    edges: Tuple[Tuple[int, int], ...]


def find_containers(view: GraphView, marks: List[Mark]) -> Containers:
    """Finds the containers with float32 elements, in time linear in the number of ops."""
    lists = _tensor_lists(view, marks)
    if not any(marks[position].listed for position in view.of_ops(MEMBERS)):
        return lists
    return _with_arrays_and_stacks(lists, view, marks)


def _tensor_lists(view: GraphView, marks: List[Mark]) -> Containers:
    lists = {p: _float32_slot(node) for p, node in enumerate(view.nodes) if "TensorList" in node.op}
    first = first_slots(view)
    members = {p: first[p] + slot for p, slot in lists.items() if slot >= 0}
    if not members:
        return Containers((), {}, ())
    handles = _handle_edges(view)
    clusters = tuple(_to_cluster(view, marks, members, group) for group in _connected_groups(handles, members))
    count = count_slots(view)
    pieces = sorted({piece for edge in handles for piece in edge if marks[piece[0]].kept is None})
    wire = {piece: count + number for number, piece in enumerate(pieces)}
    edges = [(wire[a], wire[b]) for a, b in handles if a in wire and b in wire]
    for piece, vertex in wire.items():
        op = view.nodes[piece[0]].op
        if piece[0] in members and op in WRITERS:
            edges.append((members[piece[0]], vertex))
        elif piece[0] in members and op in READERS:
            edges.append((vertex, members[piece[0]]))
    return Containers(clusters, {vertex: piece[0] for piece, vertex in wire.items()}, tuple(edges))


def _with_arrays_and_stacks(lists: Containers, view: GraphView, marks: List[Mark]) -> Containers:
    first = first_slots(view)
    clusters, wires, edges = list(lists.clusters), dict(lists.wires), list(lists.edges)
    for tie in find_ties(view):
        positions = [p for p, _ in tie.members if view.nodes[p].op in MEMBERS and view.nodes[p].dtypes[0] == FLOAT32]
        free = [p for p in positions if marks[p].kept is None]
        if not free:
            continue
        wire = count_slots(view) + len(wires)
        wires[wire] = free[0]
        writers = [p for p in positions if MEMBERS[view.nodes[p].op] is not None]
        readers = [p for p in positions if view.nodes[p].op.startswith(ARRAY_READERS)]
        edges += [(first[p], wire) for p in writers] + [(wire, first[p]) for p in readers]
        clusters.append(Cluster(tuple(first[p] for p in positions), ()))
    return Containers(tuple(clusters), wires, tuple(edges))


def _float32_slot(node: Node) -> int:
    return next((k for k, dtype in enumerate(node.dtypes) if dtype == FLOAT32), -1)


def _handle_edges(view: GraphView) -> List[Tuple[Piece, Piece]]:
    """(producer, consumer) for all edges that carry a handle."""
    edges = []
    for position, node in enumerate(view.nodes):
        for number, port in enumerate(node.inputs):
            if node.input_dtype(number) == VARIANT:
                source = view.nodes[port.node].layout.outputs[port.port]
                edges.append(((port.node, source), (position, node.layout.inputs[number])))
    return edges + _edges_of_lists_of_lists(view)


def _edges_of_lists_of_lists(view: GraphView) -> List[Tuple[Piece, Piece]]:
    """The handles that are elements of another list, as in the gradient of a loop in a loop, go where its handle goes.

    TensorListPushBack(outer, inner) ... inner = TensorListPopBack(outer)       inner and outer are one container
    """
    edges = []
    for position in view.of_ops((*sorted(WRITERS), *sorted(READERS))):
        node = view.nodes[position]
        if VARIANT in node.dtypes:
            element, outer = (position, node.dtypes.index(VARIANT)), (position, ~VARIANT)
            edges.append((element, outer) if node.op in WRITERS else (outer, element))
    return edges


def _connected_groups(handles: List[Tuple[Piece, Piece]], members: Dict[int, int]) -> List[List[int]]:
    """Node positions connected by a handle, for each group of pieces that contains a list op."""
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
        for piece in group:  # grows while iterating
            new = [other for other in beside[piece] if other not in seen]
            seen.update(new)
            group += dict.fromkeys(new)
        groups.append([position for position, _ in group])
    return groups


def _to_cluster(view: GraphView, marks: List[Mark], members: Dict[int, int], positions: List[int]) -> Cluster:
    shared = sorted(set(positions) & set(members))
    free = [p for p in shared if marks[p].kept is None]
    unsafe = len(free) < len(shared) or any(_is_border(view, p) for p in positions if p not in members)
    return Cluster(tuple(members[p] for p in shared), tuple(members[p] for p in free) if unsafe else ())


def _is_border(view: GraphView, position: int) -> bool:
    node = view.nodes[position]
    return node.op in BORDERS or node.op in view.functions or is_border(node)
