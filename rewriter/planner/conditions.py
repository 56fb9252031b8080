"""What decides whether a loop goes on: where everything is lowered, a loop that counts in float16 to 3000 never ends.

    Enter -> Merge -> Less -> Switch
                       |
                     limit

It is looked for back from what a loop's Switches ask, through whatever computes, moves or chooses data, and through
loop variables, containers and variables to what is written there; not through products and convolutions, which are what
the mode is chosen for. Of a tensor whose shape is asked for only what decides the shape counts: the x of Where(x).
"""

from typing import AbstractSet, Callable, Dict, Iterable, List, Set, Tuple

from ..graph.graph_view import GraphView, Node
from ..graph.ties import NEXT, RESOURCE, Tie
from ..graph.walks import reached
from ..tables.sizes import DYNAMIC, SHAPE_OPS, SIZES

Asked = Tuple[int, bool]  # position of a node, whether only the sizes of what it gives are asked for

MEASURES = SHAPE_OPS | {"ZerosLike", "OnesLike"}
VARIABLES = frozenset(["VarHandleOp", "Variable", "VariableV2"])
# ops that hand on what stands for a variable
HANDLES = frozenset(["Enter", "Identity", "Merge", "NextIteration", "RefEnter", "RefIdentity", "RefSwitch", "Switch"])


def deciding(view: GraphView, ties: Iterable[Tie], is_product: Callable[[str], bool]) -> Set[int]:
    """Positions of the ops whose values decide whether some loop goes on.

    Args:
        view: the graph, with its loops written as Enter, Merge, Switch and NextIteration.
        ties: the loop variables and containers of the graph.
        is_product: whether an op type is a product or a convolution.
    """
    search = _Search(view, ties, is_product)
    asked = reached([(position, False) for position in _conditions(view)], search.sources)
    return {position for position, is_size in asked if not is_size and search.computes(position)}


class _Search:
    def __init__(self, view: GraphView, ties: Iterable[Tie], is_product: Callable[[str], bool]) -> None:
        self._view, self._is_product = view, is_product
        self._written: Dict[int, List[int]] = {
            member: [view.nodes[position].inputs[number].node for position, number in tie.feeders]
            for tie in ties
            for member, _ in tie.members
        }

    def computes(self, position: int) -> bool:
        """Whether the values that a node gives are made of values that it takes."""
        op = self._view.nodes[position].op
        return op not in MEASURES and not self._is_product(op) and bool(self._givers(position))

    def sources(self, asked: Asked) -> List[Asked]:
        """What decides the values of what a node gives, or its sizes."""
        position, is_size = asked
        node = self._view.nodes[position]
        if is_size and node.op not in DYNAMIC:
            told = SIZES.get(node.op, ())
            if position in self._written or not told:
                return [(giver, True) for giver in self._givers(position)]
            return [(port.node, number not in told) for number, port in enumerate(node.inputs)]
        if self._is_product(node.op):
            return []
        return [(giver, node.op in MEASURES) for giver in self._givers(position)]

    def _givers(self, position: int) -> List[int]:
        node = self._view.nodes[position]
        if position in self._written:
            return self._written[position]
        if node.op in VARIABLES:
            return _assigned(self._view, position)
        sources = [port.node for port in node.inputs]
        if node.op == "Merge":  # of a call that is inlined: it waits for what chooses
            return [*sources, *node.controls]
        return sources or _choosing(self._view, node)


def _conditions(view: GraphView) -> List[int]:
    """Positions of the nodes that tell loops to go on."""
    nodes = view.nodes
    switches = [nodes[position] for position in view.of_ops(["Switch"])]
    loops = {merge for following in view.of_ops(NEXT) for merge in view.consumers()[following]}
    return sorted({switch.inputs[1].node for switch in switches if switch.inputs[0].node in loops})


def _choosing(view: GraphView, node: Node) -> List[int]:
    """Positions of the nodes that tell the branch that a constant is in: Identity(Switch(predicate, predicate))."""
    pivots = [control for control in node.controls if view.nodes[control].op == "Identity"]
    switches = {pivot: view.nodes[view.nodes[pivot].inputs[0].node] for pivot in pivots}
    return [pivot for pivot, switch in switches.items() if switch.op == "Switch" and len(set(switch.inputs)) == 1]


def _assigned(view: GraphView, variable: int) -> List[int]:
    """Positions of the nodes whose values go into a variable: all that a node takes with its handle or reference."""
    nodes, consumers = view.nodes, view.consumers()
    handles = set(
        reached([variable], lambda handle: [taker for taker in consumers[handle] if nodes[taker].op in HANDLES])
    )
    writers = {taker for handle in handles for taker in consumers[handle] if _takes_whole(nodes[taker], handles)}
    return [port.node for writer in sorted(writers) for port in nodes[writer].inputs if port.node not in handles]


def _takes_whole(node: Node, handles: AbstractSet[int]) -> bool:
    """Whether a node takes a variable, not its value."""
    return any(
        port.node in handles and (number in node.layout.ref_inputs or node.input_dtype(number) == RESOURCE)
        for number, port in enumerate(node.inputs)
    )
