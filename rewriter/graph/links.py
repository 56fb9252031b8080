"""Which values come to an op by ways that are no edge: through containers; and which edges close a loop.

    StackPushV2 ... StackPopV2                what is popped is one of those that were pushed
    TensorArrayWriteV3 ... TensorArrayReadV3  what is read is one of those that were written
    NextIteration -> Merge                    the value of the iteration before

So that inference can go from an op to all that it depends on, a reader of a container gets the ops that write into it
as further inputs, and the Merge of a loop loses its NextIteration.
"""

from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

from .graph_view import GraphView, Node, Port, consumers_of, topological_order, waiting_of
from .ties import NEXT, containers

ENTERS = ("Enter", "RefEnter")
BODY = "]/"  # in the name of every op of an inlined function (inlining.py), and in no name of TensorFlow's
# ops that give what is in a container whose handle they take
READERS = frozenset({"StackPopV2", "TensorArrayReadV3", "TensorArrayGatherV3"})
# Op that gives a tensor which lies outside of the graph -> ops that may have put it there, in this run or an earlier
# one. It is the tensor itself; what puts or gives many rows at once copies them.
_QUEUES, _STAGED = ("QueueEnqueue", "QueueEnqueueV2"), ("Stage", "MapStage", "OrderedMapStage")
_MAPS = ("MapUnstage", "MapUnstageNoKey", "MapPeek")
OUTSIDE = {
    **dict.fromkeys(["QueueDequeue", "QueueDequeueV2"], _QUEUES),
    **dict.fromkeys(["Unstage", "StagePeek", *_MAPS, *("Ordered" + op for op in _MAPS)], _STAGED),
    "GetSessionTensor": ("GetSessionHandle", "GetSessionHandleV2"),
}


class Links(NamedTuple):
    """A graph for inference.

    Attributes:
        nodes: the nodes; the further inputs of a reader come behind those of its layout, as first outputs of writers.
        back_edges: position of a loop's Merge -> what comes to it from the iteration before.
    """

    nodes: Sequence[Node]
    back_edges: Dict[int, Tuple[Port, ...]]


def linked(view: GraphView) -> Links:
    """Links the nodes of a graph. Containers whose contents depend on what is read from them are left out."""
    nodes = list(view.nodes)
    back_edges: Dict[int, Tuple[Port, ...]] = {}
    for position in view.of_ops(["Merge"]):
        node = nodes[position]
        back = tuple(port for port in node.inputs if nodes[port.node].op in NEXT)
        if back:
            back_edges[position] = back
            nodes[position] = node._replace(inputs=tuple(port for port in node.inputs if port not in back))
    alone = with_written(view, nodes)
    for position in _on_cycles(nodes) if alone else ():
        nodes[position] = alone.get(position, nodes[position])
    return Links(nodes, back_edges)


def with_written(view: GraphView, nodes: List[Node]) -> Dict[int, Node]:
    """Gives each reader of a container among the nodes what is written there; returns the readers as they were."""
    writers = _writers_by_reader(view)
    alone = {reader: nodes[reader] for reader in writers}
    for reader, written in writers.items():
        nodes[reader] = nodes[reader]._replace(inputs=(*nodes[reader].inputs, *written))
    return alone


def with_put_outside(view: GraphView, nodes: List[Node]) -> List[int]:
    """Gives each op that takes a tensor from outside of the graph what may be put there; returns their positions."""
    takers = view.of_ops(OUTSIDE)
    for taker in takers:
        put = [port for putter in view.of_ops(OUTSIDE[nodes[taker].op]) for port in view.nodes[putter].inputs]
        nodes[taker] = nodes[taker]._replace(inputs=(*nodes[taker].inputs, *put))
    return takers


def _writers_by_reader(view: GraphView) -> Dict[int, Tuple[Port, ...]]:
    """What is written into the container of each reader; readers of gradient arrays are left out."""
    if not view.of_ops(READERS):
        return {}
    writers = {}
    for tie in containers(view):
        written = tuple(Port(position, 0) for position, _ in tie.feeders)
        for position, _ in tie.members:
            if view.nodes[position].op in READERS and position not in tie.gradients:
                writers[position] = written
    return writers


def _on_cycles(nodes: Sequence[Node]) -> List[int]:
    """Positions of the nodes on cycles, or behind one."""
    order = topological_order(nodes, consumers_of(nodes))
    rank = {position: number for number, position in enumerate(order)}
    for number, position in enumerate(order):
        if any(rank[port.node] >= number for port in nodes[position].inputs):
            return order[number:]
    return []


def repeated(nodes: Sequence[Node]) -> Set[int]:
    """Positions of the nodes that may run more than once in a run: in loops, behind one, or in a function's body."""
    readers, waiting = consumers_of(nodes), waiting_of(nodes)
    reached = [position for position, node in enumerate(nodes) if node.op in ENTERS or BODY in node.name]
    repeated = set(reached)
    for position in reached:  # grows while it is read
        new = {*readers[position], *waiting.get(position, ())} - repeated
        repeated |= new
        reached += new
    return repeated
