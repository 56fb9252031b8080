"""Profile grappler: decides as TensorFlow's own pass auto_mixed_precision does, so that the two can be compared.

    allow (white)  low.            deny (black)  float32, and so are the ops that its values flow into.
    infer (gray)   low between two allow ops, where nothing denied flows in.
    clear (only moves data)        as infer, and also where only clear ops lie between it and something low.
    on no list     as written, and nothing passes through it.

    e.g.  Exp -> Relu -> Sqrt -> Relu -> MatMul -> Relu -> Log -> Relu -> MatMul -> Log
    gets  f32    f32     f32     f16     f16       f16     f16    f16     f16       f32

Unlike our own rule it looks downstream as well, so the fetches change what is lowered. Source: TensorFlow 2.15.1;
where that is wrong we differ, see tests/tf/test_grappler_differences.py.
"""

from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Optional, Tuple

from ...errors import PlanError, raise_first
from ...graph.emulation import Running
from ...graph.facts import NO_FACTS, Facts
from ...graph.graph_view import GraphView, Node, Port
from ...graph.kernel_table import KernelTable
from ...graph.references import readings
from ...tables.dtypes import FLOAT32, FLOATS, LOW
from ...tables.dtypes import name as dtype_name
from ...tables.op_table import OpTable
from ...tables.policy import PrecisionPolicy
from ..casts import CastEdit, Consumer, Edits, cast_name, reserve_name, waiting
from ..decisions import Plan, Reason
from ..overrides import NO_OVERRIDES, Overrides
from .containers import Cluster, find_containers
from .graph import BLACK, CLEAR, GRAY, WHITE, SlotGraph, Walk, build, mark_nodes

Cause = Tuple[Reason, int]  # why, and the slot that caused it or -1
Paint = Dict[int, Cause]  # painted vertices


class _Painter:
    """The graph and the vertices painted so far.

    Attributes:
        low: vertices that get the low dtype.
        denied: vertices that must stay float32 to keep their values accurate.
        unable: vertices that were low and had to be raised again.
    """

    def __init__(self, graph: SlotGraph, low_dtype: int, kernels: KernelTable) -> None:
        self.graph, self.low_dtype, self.kernels = graph, low_dtype, kernels
        self.low: Paint = {}
        self.denied: Paint = {}
        self.unable: Paint = {}
        self._obstacles: Dict[Tuple[int, int, str, Tuple[int, ...]], Optional[Reason]] = {}

    def free(self, vertex: int) -> bool:
        """Whether the node of a vertex may be changed."""
        return self.graph.mark(vertex).kept is None

    def follows(self, vertex: int, *lists: str) -> bool:
        """Whether a vertex may be lowered after others: it is on one of the lists, not denied, and has a kernel."""
        if vertex in self.denied or not self.free(vertex):
            return False
        return self.graph.is_wire(vertex) or (self.graph.mark(vertex).listed in lists and not self.obstacle(vertex))

    def obstacle(self, vertex: int) -> Optional[Reason]:
        """Why this slot alone cannot be lowered, the node's other slots unchanged; None if it can."""
        graph = self.graph
        if vertex >= graph.slots:
            return Reason.NO_LOW_TYPE
        position = graph.owner[vertex]
        node = graph.view.nodes[position]
        k = vertex - graph.first[position]
        key = (id(node.layout), k, node.device, node.dtypes)
        if key not in self._obstacles:
            dtypes = graph.dtypes_with(position, (vertex,), self.low_dtype)
            if not self.admits(node, k):
                self._obstacles[key] = Reason.NO_LOW_TYPE
            else:
                runs = self.kernels.runs(node.layout, node.device, dtypes)
                self._obstacles[key] = None if runs else Reason.NO_KERNEL
        return self._obstacles[key]

    def admits(self, node: Node, k: int) -> bool:
        """Whether the op's definition allows the low dtype in slot k."""
        admits = node.layout.admits[k]
        return admits is None or self.low_dtype in admits

    def take(self, paint: Paint, walk: Walk, reason: Reason) -> None:
        """Paints the vertices that a walk reached."""
        for vertex in walk:
            paint.setdefault(vertex, (reason, self.graph.cause(walk, vertex)))


def plan(
    view: GraphView,
    table: OpTable,
    policy: PrecisionPolicy,
    kernels: KernelTable,
    overrides: Overrides = NO_OVERRIDES,
    facts: Facts = NO_FACTS,
) -> Plan:
    """Plans the rewrite of a graph by TensorFlow's rule; arguments as `plan.plan`, and as independent of node order.

    Raises:
        PlanError: an override that this profile cannot follow.
    """
    kernels = replace(kernels, slow={})
    read = readings(view)
    marks = mark_nodes(view, table, kernels, overrides, read.late)
    containers = find_containers(view, marks)
    graph = build(view, marks, containers.edges, containers.wires)
    painter = _Painter(graph, policy.low, kernels)
    painter.low.update(dict.fromkeys(filter(painter.free, graph.on_list(WHITE)), (Reason.WHITE, -1)))
    if painter.low:
        _propagate_denial(painter, containers.clusters)
        _lower_between(painter)
        _lower_beside(painter)
        _raise_what_cannot_be_low(painter)
        _settle_clusters(painter, containers.clusters)
        _settle_loops(painter)
        _retarget_casts(painter, read.copies)
    planned = _to_plan(painter, policy)
    return replace(planned, edits=waiting(planned.edits, read.before))


def _propagate_denial(painter: _Painter, clusters: Iterable[Cluster]) -> None:
    """Denies black ops, the black and gray ops that their values reach, and everything in between.

    e.g.  Exp -> Log -> Relu -> Log -> Relu -> MatMul:  the last Relu is free, no gray op follows it
    """
    graph = painter.graph
    at_borders = {vertex: (Reason.LIST_FLOAT32, -1) for cluster in clusters for vertex in cluster.denied}
    above = graph.walk(
        graph.on_list(BLACK, GRAY), lambda v: graph.is_wire(v) or graph.mark(v).listed == CLEAR, graph.sources
    )
    black = [vertex for vertex in graph.on_list(BLACK) if vertex not in at_borders]
    walk = graph.walk(black, lambda v: v in above and v not in at_borders, graph.readers)
    painter.denied.update(at_borders)
    painter.denied.update(dict.fromkeys(black, (Reason.BLACK, -1)))
    painter.take(painter.denied, walk, Reason.DENIED)
    _settle_clusters(painter, clusters)


def _lower_between(painter: _Painter) -> None:
    """Lowers the gray and clear ops on paths between two white ops."""
    graph = painter.graph
    white = list(painter.low)
    below = graph.walk(white, lambda v: painter.follows(v, GRAY, CLEAR), graph.readers)
    between = graph.walk(white, lambda v: v in below, graph.sources)
    for vertex in between:
        painter.low.setdefault(vertex, (Reason.BETWEEN, graph.cause(below, vertex)))


def _lower_beside(painter: _Painter) -> None:
    """Lowers clear ops that only clear ops separate from something low, upstream or downstream."""
    graph = painter.graph
    walk = graph.walk(list(painter.low), lambda v: painter.follows(v, CLEAR), graph.readers, graph.sources)
    painter.take(painter.low, walk, Reason.BESIDE)


def _raise_what_cannot_be_low(painter: _Painter) -> None:
    """Raises slots of white ops that do not admit low precision, and nodes whose new dtypes no kernel runs."""
    graph = painter.graph
    by_node: Dict[int, List[int]] = {}
    problems: Dict[str, PlanError] = {}
    for vertex in painter.low:
        if not graph.is_wire(vertex):
            by_node.setdefault(graph.owner[vertex], []).append(vertex)
    for position, vertices in by_node.items():
        node = graph.view.nodes[position]
        fit = [v for v in vertices if v < graph.slots and painter.admits(node, v - graph.first[position])]
        dtypes = graph.dtypes_with(position, fit, painter.low_dtype)
        reason = Reason.NO_LOW_TYPE
        runs = painter.kernels.runs
        if fit and not runs(node.layout, node.device, dtypes) and runs(node.layout, node.device, node.dtypes):
            fit, reason = [], Reason.NO_KERNEL
        if graph.marks[position].customized and not fit:
            text = "no kernel runs '%s' (op %s) in %s, which is asked for"
            problems[node.name] = PlanError(text % (node.name, node.op, dtype_name(painter.low_dtype)))
        for vertex in set(vertices) - set(fit):
            painter.unable[vertex] = (reason, -1)
            del painter.low[vertex]
    raise_first(problems)


def _settle_clusters(painter: _Painter, clusters: Iterable[Cluster]) -> None:
    """Gives all ops of a TensorList one paint: denied if one of them is, else low if one of them is."""
    rank = painter.graph.rank.__getitem__
    for cluster in clusters:
        denied = [vertex for vertex in cluster.members if vertex in painter.denied]
        low = [vertex for vertex in cluster.members if vertex in painter.low]
        if denied:
            cause = min(denied, key=rank)
            for vertex in cluster.members:
                painter.denied.setdefault(vertex, (Reason.LIST_FLOAT32, cause))
                painter.low.pop(vertex, None)
        elif low:
            cause = min(low, key=rank)
            for vertex in cluster.members:
                painter.low.setdefault(vertex, (Reason.LIST_LOW, cause))


def _settle_loops(painter: _Painter) -> None:
    """Gives the next value of a loop variable the dtype of its Merge: no Cast may stand on the edge back."""
    graph = painter.graph
    nodes = graph.view.nodes
    back: Dict[int, List[int]] = {}
    for position, node in enumerate(nodes):
        for port in node.inputs if node.op == "Merge" else ():
            if nodes[port.node].op == "NextIteration" and node.dtypes[0] == FLOAT32:
                back.setdefault(graph.first[port.node], []).append(graph.first[position])
    for following, merges in back.items():
        obstacles = [merge for merge in merges if merge not in painter.low]
        obstacles += [] if painter.free(following) else [following]  # one that is fetched stays as it is
        if not obstacles:
            painter.low.setdefault(following, (Reason.MERGE, min(merges, key=graph.rank.__getitem__)))
            continue
        cause = min(obstacles, key=graph.rank.__getitem__)
        for vertex in [following, *merges]:
            if painter.low.pop(vertex, None):
                painter.unable[vertex] = (Reason.MERGE, -1 if vertex == cause else cause)


def _retarget_casts(painter: _Painter, copies: FrozenSet[int]) -> None:
    """Makes an existing Cast to float32 write low precision if all its consumers are low.

    What is fed or fetched stays, and what copies a variable: to its own dtype a Cast copies nothing.
    """
    graph = painter.graph
    for position, node in enumerate(graph.view.nodes):
        if node.op != "Cast" or position in copies or graph.marks[position].kept in (Reason.FETCHED, Reason.FED):
            continue
        slots = [k for k in node.layout.outputs if k >= 0 and node.dtypes[k] == FLOAT32]
        for vertex in (graph.first[position] + k for k in slots):
            readers = graph.readers.get(vertex, [])
            if readers and all(reader in painter.low for reader in readers):
                painter.low[vertex] = (Reason.CAST_LOW, min(readers, key=graph.rank.__getitem__))


def _to_plan(painter: _Painter, policy: PrecisionPolicy) -> Plan:
    graph = painter.graph
    becomes: List[int] = []
    reasons: List[Reason] = []
    because: List[int] = []
    for position, node in enumerate(graph.view.nodes):
        for k, was in enumerate(node.dtypes):
            vertex = graph.first[position] + k
            reason, cause = _reason_of(painter, position, was, vertex)
            becomes.append(policy.low if vertex in painter.low and was == FLOAT32 else was)
            reasons.append(reason)
            because.append(cause)
    running = Running(becomes, {})  # like the pass, it uses the CPU's slow kernels
    edits = _shared_casts(graph.view, graph.first, becomes)
    return Plan(graph.view, policy, graph.first, becomes, reasons, because, running, edits)


def _reason_of(painter: _Painter, position: int, was: int, vertex: int) -> Cause:
    """The reason for a slot's dtype, and its cause."""
    if was not in FLOATS:
        return Reason.NOT_FLOAT, -1
    if was in LOW:
        return Reason.ALREADY_LOW, -1
    for paint in (painter.low, painter.denied, painter.unable):
        if vertex in paint:
            return paint[vertex]
    mark = painter.graph.marks[position]
    if painter.graph.view.nodes[position].op == "Cast":
        return Reason.CAST, -1
    if mark.kept is not None:
        return mark.kept, -1
    if not mark.listed:
        return Reason.UNLISTED, -1
    return painter.obstacle(vertex) or Reason.APART, -1


def _shared_casts(view: GraphView, first: List[int], becomes: List[int]) -> Edits:
    """One Cast for each output and dtype that its consumers need, shared by these consumers."""
    nodes = view.nodes

    def dtype_of(position: int, slot: int) -> int:
        return becomes[first[position] + slot] if slot >= 0 else ~slot

    needs: Dict[Tuple[Port, int], List[Consumer]] = {}
    for position, node in enumerate(nodes):
        for number, port in enumerate(node.inputs):
            have = dtype_of(port.node, nodes[port.node].layout.outputs[port.port])
            want = dtype_of(position, node.layout.inputs[number])
            if have != want and have in FLOATS and want in FLOATS:
                needs.setdefault((port, want), []).append((position, number))
    names = {node.name for node in nodes}
    casts = []
    for port, want in sorted(needs, key=lambda need: (nodes[need[0].node].name, need[0].port)):
        node = nodes[port.node]
        tensor = node.name if port.port == 0 else "%s:%d" % (node.name, port.port)
        have = dtype_of(port.node, node.layout.outputs[port.port])
        consumers = tuple(sorted(needs[port, want], key=lambda c: (nodes[c[0]].name, c[1])))
        name = reserve_name(cast_name(node, port.port, want), names)
        casts.append(CastEdit(name, tensor, port, have, want, node.device, consumers))
    return Edits(tuple(sorted(casts, key=lambda cast: cast.name)))
