"""What decides whether a loop goes on: where everything is lowered, a loop that counts in float16 to 3000 never ends.

    Enter -> Merge -> Less -> Switch
                       |
                     limit

It is looked for back from what a loop's Switches ask, through what computes element by element, reduces or moves data,
and through loop variables, containers and variables to what is written there; not through products, softmax, pooling,
an ArgMax and the like.
"""

from typing import AbstractSet, Dict, Iterable, List, Set

from .graph_view import GraphView
from .ties import NEXT, Tie
from .walks import reached

# ops that a condition is looked through: whoever counts or compares with them means the number that they would give
_COMPUTES = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Any ApproximateEqual Asin Asinh Atan Atan2 Atanh BiasAdd Cast
    Ceil ClipByValue Cos Cosh Cumprod Cumsum Div DivNoNan Elu Equal Erf Erfc EuclideanNorm Exp Expm1 Floor FloorDiv
    FloorMod Greater GreaterEqual Inv IsFinite IsInf IsNan L2Loss LeakyRelu Less LessEqual Log Log1p LogicalAnd
    LogicalNot LogicalOr LoopCond Max Maximum Mean Min Minimum Mod Mul MulNoNan Neg NotEqual Pow Prod RealDiv
    Reciprocal Relu Relu6 Rint Round Rsqrt ScatterNd Select SelectV2 Selu Sigmoid Sign Sin Sinh Softplus Softsign
    Sqrt Square SquaredDifference Sub Sum Tan Tanh TensorScatterAdd TensorScatterMax TensorScatterMin
    TensorScatterSub TruncateDiv TruncateMod Xdivy Xlog1py Xlogy
"""
COMPUTES = frozenset(_COMPUTES.split())
READ = "ReadVariableOp"
MEASURES = frozenset(["Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"])  # of values that they do not read
VARIABLES = frozenset(["VarHandleOp", "Variable", "VariableV2"])
# ops that hand on what stands for a variable
HANDLES = frozenset(["Enter", "Identity", "Merge", "NextIteration", "RefEnter", "RefIdentity", "RefSwitch", "Switch"])
# ops whose second input goes into the variable that their first stands for
ASSIGNS = frozenset(
    ["Assign", "AssignAdd", "AssignAddVariableOp", "AssignSub", "AssignSubVariableOp", "AssignVariableOp"]
)


def deciding(view: GraphView, ties: Iterable[Tie], moves: AbstractSet[str]) -> Set[int]:
    """Positions of the ops whose values decide whether some loop goes on.

    Args:
        view: the graph, with its loops written as Enter, Merge, Switch and NextIteration.
        ties: the loop variables and containers of the graph.
        moves: the ops that only move data.
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
        looks_through = node.op in COMPUTES or node.op == READ or (node.op in moves and node.op not in MEASURES)
        return [port.node for port in node.inputs] if looks_through else []

    return {position for position in reached(_conditions(view), givers) if givers(position)}


def _conditions(view: GraphView) -> List[int]:
    """Positions of the nodes that tell loops to go on."""
    nodes = view.nodes
    switches = [nodes[position] for position in view.of_ops(["Switch"])]
    loops = {merge for following in view.of_ops(NEXT) for merge in view.consumers()[following]}
    return sorted({switch.inputs[1].node for switch in switches if switch.inputs[0].node in loops})


def _assigned(view: GraphView, variable: int) -> List[int]:
    """Positions of the nodes whose values are assigned to a variable, or added to it."""
    nodes, consumers = view.nodes, view.consumers()

    def takers(position: int) -> List[int]:
        return [taker for taker in consumers[position] if nodes[taker].op in HANDLES or nodes[taker].op in ASSIGNS]

    writers = [position for position in reached([variable], takers) if nodes[position].op in ASSIGNS]
    return [nodes[position].inputs[1].node for position in writers]
