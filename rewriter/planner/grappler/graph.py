"""The graph that profile grappler walks: the float32 slots, the edges between them, and a mark for each node.

An edge leads from an output's slot to the slot of the input that reads it. It joins equal dtypes, so slots of other
dtypes are never reached and are left out.

    MatMul.T -> BiasAdd.T -> Cast.SrcT      Cast.DstT -> Exp.T      no edge joins the slots of one node
"""

from dataclasses import dataclass
from typing import Callable, Collection, Dict, Iterable, List, Mapping, Optional, Tuple

from ...errors import PlanError, raise_first
from ...graph.graph_view import GraphView, Node, is_border
from ...graph.kernel_table import KernelTable, device_type
from ...tables.dtypes import FLOAT32, FLOATS, HANDLES, LOW
from ...tables.op_table import Entry, OpTable
from ..decisions import Reason
from ..overrides import Overrides, asked_of_slot

# lists of this profile, by their names in our op table and in TensorFlow
WHITE, BLACK, GRAY, CLEAR, UNLISTED = "white", "black", "gray", "clear", ""  # allow, deny, infer, clear
SCOPE = "to_float"  # what requests a dtype for all nodes that were made in a scope
Walk = Dict[int, int]  # vertex -> the vertex from which it was first reached, -1 for a root


@dataclass(frozen=True)
class Mark:
    """One node's list, the reason to leave it unchanged (or None), and whether the user requests it low."""

    listed: str
    kept: Optional[Reason] = None
    customized: bool = False


BORDER = Mark(UNLISTED, Reason.BORDER)


@dataclass(frozen=True)
class SlotGraph:
    """Float32 slots as vertices. A slot's vertex is its number in the plan; vertices from `slots` on are not slots.

    Attributes:
        view: the graph.
        first: number of each node's first slot.
        slots: number of slots of the graph.
        wires: number of vertices, from `slots` on, that are pieces of TensorList handles; the vertices after them are
            ports that are float32 by definition.
        owner: node position of every vertex.
        readers: vertex -> vertices that it feeds.
        sources: vertex -> vertices that feed it.
        rank: vertex -> its place in an order that does not depend on the order of the nodes.
        marks: one for each node.
    """

    view: GraphView
    first: List[int]
    slots: int
    wires: int
    owner: Dict[int, int]
    readers: Dict[int, List[int]]
    sources: Dict[int, List[int]]
    rank: Dict[int, int]
    marks: List[Mark]

    def mark(self, vertex: int) -> Mark:
        """The mark of a vertex's node."""
        return self.marks[self.owner[vertex]]

    def dtypes_with(self, position: int, low: Collection[int], dtype: int) -> Tuple[int, ...]:
        """The dtypes of a node once its slots in `low` have `dtype`."""
        first = self.first[position]
        return tuple(dtype if first + k in low else was for k, was in enumerate(self.view.nodes[position].dtypes))

    def is_wire(self, vertex: int) -> bool:
        """Whether a vertex is a piece of a TensorList's handle."""
        return self.slots <= vertex < self.slots + self.wires

    def on_list(self, *lists: str) -> List[int]:
        """The vertices, wires apart, whose ops are on one of these lists."""
        on = {position for position, mark in enumerate(self.marks) if mark.listed in lists}
        return [vertex for vertex, position in self.owner.items() if position in on and not self.is_wire(vertex)]

    def walk(self, roots: Iterable[int], enters: Callable[[int], bool], *ways: Mapping[int, List[int]]) -> Walk:
        """Walks breadth first from the roots through vertices that `enters` accepts; returns every vertex reached."""
        reached = dict.fromkeys(roots, -1)
        border = sorted(reached, key=self.rank.__getitem__)
        while border:
            neighbours = []
            for vertex in border:
                for way in ways:
                    for neighbour in way.get(vertex, ()):
                        if neighbour not in reached and enters(neighbour):
                            reached[neighbour] = vertex
                            neighbours.append(neighbour)
            border = sorted(neighbours, key=self.rank.__getitem__)
        return reached

    def cause(self, walk: Walk, vertex: int) -> int:
        """The slot from which a walk reached a vertex, -1 for a root."""
        vertex = walk[vertex]
        while vertex >= self.slots:
            vertex = walk[vertex]
        return vertex


def build(view: GraphView, marks: List[Mark], edges: Iterable[Tuple[int, int]], wires: Mapping[int, int]) -> SlotGraph:
    """Builds the graph of slots.

    Args:
        view: the graph.
        marks: from `mark_nodes`.
        edges: further edges between slots and wires.
        wires: vertex of each wire -> node position.
    """
    first = first_slots(view)
    slots = count_slots(view)
    owner = {
        start + k: position
        for position, (node, start) in enumerate(zip(view.nodes, first))
        for k, dtype in enumerate(node.dtypes)
        if dtype == FLOAT32
    }
    owner.update(wires)
    fixed: Dict[int, int] = {}  # node position -> the vertex of its ports that are float32 by definition

    def vertex_of(position: int, slot: int) -> int:
        if slot >= 0:
            return first[position] + slot
        if position not in fixed:
            fixed[position] = slots + len(wires) + len(fixed)
            owner[fixed[position]] = position
        return fixed[position]

    readers: Dict[int, List[int]] = {}
    sources: Dict[int, List[int]] = {}

    def join(source: int, reader: int) -> None:
        readers.setdefault(source, []).append(reader)
        sources.setdefault(reader, []).append(source)

    for position, node in enumerate(view.nodes):
        for number, port in enumerate(node.inputs):
            if node.input_dtype(number) == FLOAT32:
                source = vertex_of(port.node, view.nodes[port.node].layout.outputs[port.port])
                join(source, vertex_of(position, node.layout.inputs[number]))
    for source, reader in edges:
        join(source, reader)
    by_name = sorted(owner, key=lambda vertex: (view.nodes[owner[vertex]].name, vertex))
    rank = {vertex: place for place, vertex in enumerate(by_name)}
    return SlotGraph(view, first, slots, len(wires), owner, readers, sources, rank, marks)


def first_slots(view: GraphView) -> List[int]:
    """Number of each node's first slot, the slots of all nodes being numbered consecutively."""
    first, count = [], 0
    for node in view.nodes:
        first.append(count)
        count += len(node.dtypes)
    return first


def count_slots(view: GraphView) -> int:
    """Number of slots of the graph."""
    return sum(len(node.dtypes) for node in view.nodes)


def mark_nodes(
    view: GraphView, table: OpTable, kernels: KernelTable, overrides: Overrides, late: Collection[int] = ()
) -> List[Mark]:
    """Marks every node; `late` are positions of those that read a reference variable's memory after a write.

    Raises:
        PlanError: an override that this profile cannot express.
    """
    marks_by_kind: Dict[Tuple[str, str], Mark] = {}
    fed = {port.node for port in view.fed}
    marks: List[Mark] = []
    references: List[int] = []
    problems: Dict[str, PlanError] = {}
    for position, node in enumerate(view.nodes):
        if is_border(node):
            marks.append(BORDER)
            continue
        kept = _reason_to_keep(view, position, node, kernels, fed) or (Reason.LATE if position in late else None)
        if kept is None:
            # a node that may change counts as the newer form that it would be rewritten to
            op = node.layout.op
        else:
            op = node.op
        mark = marks_by_kind.setdefault((op, kept.name if kept else ""), Mark(_list_of(table.entries.get(op)), kept))
        try:
            mark = _mark_requested(node, mark, _requested_dtype(overrides, node))
        except PlanError as problem:
            problems[node.name] = problem
        marks.append(mark)
        if mark.kept is Reason.REFERENCE:
            references.append(position)
    raise_first(problems)
    _keep_entered_references(view, marks, references)
    return marks


def _list_of(entry: Optional[Entry]) -> str:
    if entry is None or entry.role not in ("computes", "moves"):
        return UNLISTED
    return CLEAR if entry.role == "moves" else entry.listed


def _reason_to_keep(
    view: GraphView, position: int, node: Node, kernels: KernelTable, fed: Collection[int]
) -> Optional[Reason]:
    """The reason to leave a node unchanged, or None."""
    if position in view.preserved:
        return Reason.FETCHED
    if position in fed:
        return Reason.FED
    if node.kept:
        return Reason.SCOPE
    if node.device and not _is_on(node.device, kernels.default_device):
        return Reason.ELSEWHERE
    if node.layout.ref_inputs or node.layout.ref_outputs or _reads_reference(view, node):
        return Reason.REFERENCE
    return None


def _is_on(device: str, wanted: str) -> bool:
    """Whether a device name is complete, including its number, and of this type."""
    return wanted in device_type(device) and device.rpartition(":")[2].isdigit()


def _reads_reference(view: GraphView, node: Node) -> bool:
    return any(port.port in view.nodes[port.node].layout.ref_outputs for port in node.inputs)


def _keep_entered_references(view: GraphView, marks: List[Mark], references: List[int]) -> None:
    """Keeps each Enter that follows the Identity of a reference variable: it must not move behind a Cast either."""
    readers = {position for position in references if view.nodes[position].op == "Identity"}
    enters = [p for p, node in enumerate(view.nodes) if node.op == "Enter"] if readers else []
    while enters:
        entered = [p for p in enters if view.nodes[p].inputs[0].node in readers]
        for position in entered:
            marks[position] = Mark(marks[position].listed, marks[position].kept or Reason.REFERENCE)
        readers = set(entered)
        enters = [p for p in enters if p not in readers] if entered else []


def _requested_dtype(overrides: Overrides, node: Node) -> Optional[Tuple[str, int]]:
    """(source, dtype) where the user requests one floating dtype for a node."""
    override = overrides.of(node)
    if override is None:
        return (SCOPE, node.asked) if node.asked in FLOATS else None
    asked = [asked_of_slot(override, node, k) for k in range(len(node.dtypes))]
    pairs = {pair for pair, was in zip(asked, node.dtypes) if pair is not None and was in FLOATS}
    if not pairs:
        return None
    [(dtype, narrowed), *others] = pairs
    if others or narrowed:
        text = "%s: profile 'grappler' gives all of '%s' (op %s) one dtype; the profile 'gpu' can do more"
        raise PlanError(text % (override.source, node.name, node.op))
    return override.source, dtype


def _is_source(node: Node) -> bool:
    """Whether a node on no list gives what no floats are computed to, or reads or writes what a handle stands for."""
    taken = [node.input_dtype(number) for number in range(len(node.inputs))]
    given = [node.output_dtype(number) for number in range(len(node.layout.outputs))]
    return FLOATS.isdisjoint(taken) or not HANDLES.isdisjoint([*taken, *given])


def _mark_requested(node: Node, mark: Mark, requested: Optional[Tuple[str, int]]) -> Mark:
    if requested is None:
        return mark
    source, dtype = requested
    if dtype not in LOW:
        return Mark(mark.listed, mark.kept or Reason.CUSTOM)
    kept = None if mark.kept is Reason.SCOPE else mark.kept
    kept = kept or (Reason.SOURCE if mark.listed == UNLISTED and _is_source(node) else None)
    if kept is not None and source == SCOPE:
        return mark  # a scope asks for what can be changed in it
    if kept is not None:
        text = "%s: the dtypes of '%s' (op %s) cannot be changed: %s"
        raise PlanError(text % (source, node.name, node.op, kept.value))
    return Mark(WHITE, None, True)
