"""What decides whether a loop goes on: where everything is lowered, a loop that counts in float16 to 3000 never ends.

    Enter -> Merge -> Less -> Switch
                       |
                     limit

It is looked for back from what a loop's Switches ask, through whatever computes or moves data, and through loop
variables, containers and variables to what is written there; not through products and convolutions, which are what the
mode is chosen for.
"""

from typing import AbstractSet, Callable, Dict, Iterable, List, Set

from .graph_view import GraphView, Node
from .ties import NEXT, RESOURCE, Tie
from .walks import reached

MEASURES = frozenset(["Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"])  # of values that they do not read
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
    nodes = view.nodes
    written: Dict[int, List[int]] = {
        member: [nodes[position].inputs[number].node for position, number in tie.feeders]
        for tie in ties
        for member, _ in tie.members
    }

    def givers(position: int) -> List[int]:
        node = nodes[position]
        if position in written:
            return written[position]
        if node.op in VARIABLES:
            return _assigned(view, position)
        return [] if node.op in MEASURES or is_product(node.op) else [port.node for port in node.inputs]

    return {position for position in reached(_conditions(view), givers) if givers(position)}


def _conditions(view: GraphView) -> List[int]:
    """Positions of the nodes that tell loops to go on."""
    nodes = view.nodes
    switches = [nodes[position] for position in view.of_ops(["Switch"])]
    loops = {merge for following in view.of_ops(NEXT) for merge in view.consumers()[following]}
    return sorted({switch.inputs[1].node for switch in switches if switch.inputs[0].node in loops})


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
