"""Compares the edges of a rewritten graph with those of the original: one that leads elsewhere would be silent.

    before   x -> MatMul                    after   x -> [Cast] -> MatMul        what is inserted is looked through
    before   MatMul (fetched)               after   MatMul-in-float16 -> [Cast, under the old name]

With the inserted nodes taken out and the renamed ones under their old names, each data and control input of each node
is the original one, in its order. One exception is written into the plan: a reader of an existing Cast may read what
the Cast reads.
"""

from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..graph import folding
from ..graph.graph_view import GraphView, Node, Port
from ..tables.dtypes import name as dtype_name
from .casts import Boundary, CastEdit, Consumer
from .decisions import Plan

LONGEST = 8  # inserted nodes between a reader and what it reads; a plan has at most five
NO_FOLDED: Mapping[str, Port] = {}


class Compared(NamedTuple):
    """A graph before and after a rewrite: the same nodes at the same positions, then the inserted ones.

    Attributes:
        before, after: the graphs.
        changed: positions of the original nodes that differ, ascending.
        position: positions of the names after the rewrite.
        folded: name of each inserted Const -> the output whose value it holds.
        renamed: position of an inserted node that has the name of a renamed one -> position of that one.
    """

    before: GraphView
    after: GraphView
    changed: Sequence[int]
    position: Mapping[str, int]
    folded: Mapping[str, Port] = NO_FOLDED
    renamed: Mapping[int, int] = {}

    def origin(self, port: Port) -> Optional[Port]:
        """The output of an original node behind inserted ones; None where there is none."""
        count, nodes = len(self.before.nodes), self.after.nodes
        for _ in range(LONGEST):
            if port.node < count:
                return port
            node = nodes[port.node]
            if node.op == "Cast":
                port = node.inputs[0]
            elif node.op == "IdentityN":
                port = node.inputs[port.port]
            elif node.name in self.folded:
                port = self.folded[node.name]
            else:
                return None
        return None

    def text(self, port: Optional[Port]) -> str:
        """An output, for people."""
        if port is None or port.node >= len(self.after.nodes):
            return "nothing"
        return "'%s%s'" % (self.after.nodes[port.node].name, ":%d" % port.port if port.port > 0 else "")


def compared(
    before: GraphView, after: GraphView, changed: Sequence[int], position: Mapping[str, int], plan: Optional[Plan]
) -> Compared:
    """What is to be compared; without a plan no constant is folded and no node renamed."""
    if plan is None:
        return Compared(before, after, changed, position)
    folded = {cast.name: cast.source for cast in plan.casts if cast.folded and isinstance(cast.source, Port)}
    names = ((before.nodes[boundary.node].name, boundary.node) for boundary in plan.edits.boundaries)
    renamed = {position[name]: node for name, node in names if name in position}
    return Compared(before, after, changed, position, folded, renamed)


def edges_stay(graphs: Compared) -> Iterator[str]:
    """Each input of each node is the original one, whatever was inserted before it."""
    for position in graphs.changed:
        was, now = graphs.before.nodes[position], graphs.after.nodes[position]
        if now.inputs != was.inputs:
            yield from _data_inputs_stay(graphs, was, now)
        if now.controls != was.controls:
            yield from _controls_stay(graphs, was, now)


def _data_inputs_stay(graphs: Compared, was: Node, now: Node) -> Iterator[str]:
    if len(now.inputs) != len(was.inputs):
        yield "'%s' had %d inputs and has %d" % (was.name, len(was.inputs), len(now.inputs))
        return
    for number, (old, new) in enumerate(zip(was.inputs, now.inputs)):
        origin = graphs.origin(new)
        if origin != old and not (origin is not None and origin == _behind_cast(graphs.before, old)):
            yield "input %d of '%s' was %s and is %s" % (number, was.name, graphs.text(old), graphs.text(origin))


def _behind_cast(before: GraphView, port: Port) -> Optional[Port]:
    """What an existing Cast reads, if who reads the Cast may read that."""
    node = before.nodes[port.node]
    return node.inputs[0] if node.op == "Cast" and not node.controls and port not in before.fed else None


def _controls_stay(graphs: Compared, was: Node, now: Node) -> Iterator[str]:
    old, new = was.controls, tuple([graphs.renamed.get(position, position) for position in now.controls])
    if old != new:
        names = [
            ", ".join("'%s'" % nodes[position].name for position in positions) or "nothing"
            for nodes, positions in ((graphs.before.nodes, old), (graphs.after.nodes, new))
        ]
        yield "'%s' waited for %s and waits for %s" % (was.name, *names)


def nodes_stay(graphs: Compared, plan: Optional[Plan]) -> Iterator[str]:
    """Each node is there under its name, with its op and on its device; dtypes differ where the plan says."""
    renamed = {} if plan is None else {boundary.node: boundary.renamed for boundary in plan.edits.boundaries}
    changes = None if plan is None else plan.changed_nodes()
    for position in graphs.changed:
        was, now = graphs.before.nodes[position], graphs.after.nodes[position]
        dtypes = now.dtypes if changes is None else changes.get(position, was.dtypes)
        yield from _node_stays(was, now, renamed.get(position, was.name), dtypes)


def _node_stays(was: Node, now: Node, name: str, dtypes: Tuple[int, ...]) -> Iterator[str]:
    if now.name != name:
        yield "'%s' is gone; '%s' is in its place" % (was.name, now.name)
        return
    if now.op != was.op and (now.op != was.layout.op or now.dtypes == was.dtypes):
        yield "'%s' was of op %s and is of op %s" % (was.name, was.op, now.op)
    if now.device != was.device:
        yield "'%s' was on device '%s' and is on '%s'" % (was.name, was.device, now.device)
    if now.dtypes != dtypes:
        names = (",".join(map(dtype_name, numbers)) for numbers in (dtypes, now.dtypes))
        yield "'%s' is planned to have dtypes %s and has %s" % (was.name, *names)


def plan_is_followed(graphs: Compared, plan: Plan) -> Iterator[str]:
    """What is inserted is what the plan says, and read where it says."""
    ends = {cast.name: graphs.position.get(cast.name, -1) for cast in plan.casts}
    wanted: Dict[Consumer, Port] = dict(plan.edits.reconnections)
    for cast in plan.casts:
        port = Port(ends[cast.name], 0)
        wanted.update((consumer, port) for consumer in cast.consumers)
        yield from _cast_stands(graphs, cast, ends)
    restoring = [boundary for boundary in plan.edits.boundaries if len(boundary.casts) > 1]
    for boundary in restoring:
        yield from _name_is_restored(graphs, boundary)
    count = len(graphs.after.nodes) - len(graphs.before.nodes)
    if count != len(plan.casts) + len(restoring):
        yield "%d nodes are inserted, and %d are planned" % (count, len(plan.casts) + len(restoring))
    yield from _readers_follow(graphs, wanted)


def _readers_follow(graphs: Compared, wanted: Dict[Consumer, Port]) -> Iterator[str]:
    """Each input that the plan leads elsewhere is led there, and no other."""
    for position in graphs.changed:
        was, now = graphs.before.nodes[position], graphs.after.nodes[position]
        if now.inputs != was.inputs and len(now.inputs) == len(was.inputs):
            for number, (old, new) in enumerate(zip(was.inputs, now.inputs)):
                planned = wanted.pop((position, number), old)
                if new != planned:
                    texts = graphs.text(planned), graphs.text(new)
                    yield "input %d of '%s' is planned to be %s and is %s" % (number, was.name, *texts)
    for (position, number), port in wanted.items():
        if graphs.before.nodes[position].inputs[number] != port:
            name = graphs.before.nodes[position].name
            yield "input %d of '%s' is planned to be %s and is as before" % (number, name, graphs.text(port))


def _cast_stands(graphs: Compared, cast: CastEdit, ends: Mapping[str, int]) -> Iterator[str]:
    node = graphs.after.nodes[ends[cast.name]] if ends[cast.name] >= len(graphs.before.nodes) else None
    if node is None:
        yield "the Cast '%s' is missing" % cast.name
        return
    source = cast.source if isinstance(cast.source, Port) else Port(ends[str(cast.source)], 0)
    has = (node.op, node.dtypes, node.inputs, sorted(node.controls), node.device)
    if cast.folded:
        wanted = ("Const", (cast.dtype,), (), folding.controls(graphs.before, source), cast.device)
        if has != wanted:
            yield "'%s' is not the planned constant for '%s'" % (cast.name, cast.tensor)
    elif has != ("Cast", (cast.source_dtype, cast.dtype), (source,), sorted(cast.before), cast.device):
        yield "'%s' is not the planned Cast of '%s'" % (cast.name, cast.tensor)


def _name_is_restored(graphs: Compared, boundary: Boundary) -> Iterator[str]:
    was = graphs.before.nodes[boundary.node]
    node = graphs.after.nodes[graphs.position.get(was.name, -1)]
    inputs = tuple(
        [
            Port(boundary.node, number) if name is None else Port(graphs.position.get(name, -1), 0)
            for number, name in enumerate(boundary.casts)
        ]
    )
    dtypes = tuple([was.output_dtype(number) for number in range(len(inputs))])
    has = node.op, node.name, node.inputs, node.dtypes, node.controls, node.device
    if has != ("IdentityN", was.name, inputs, dtypes, (), was.device):
        yield "'%s' does not give the results of '%s' as before" % (was.name, boundary.renamed)
