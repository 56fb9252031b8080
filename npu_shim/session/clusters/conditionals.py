"""tf.cond in a session's clusters: the part of it that XLA can run becomes a functional If.

TensorFlow's clusters contain no Switch and no Merge, so each tf.cond cuts a cluster in two. They may contain an If, but
none that touches variables (TensorFlow 2.15: "resource variable op in called function"); such an If is compiled as a
function of its own, always and as a whole (`_XlaMustCompile`).

    values   Merge(Switch(x, p):0, All(Switch(g, p):1))                  StatelessIf(p, x, g), in a cluster
    updates  ResourceApplyAdam(Switch(w, p):1, ..., Switch(g, p):1)      StatefulPartitionedCall(p, w, ..., g)

Values move if the Merge says that both sides have the same shapes (EQUAL_SHAPES), which XLA requires. An update moves
if the path from the Switch to it has only OPS: XLA can neither refuse nor recompile these. Sparse updates, for example,
stay, and so does everything after them in their branch.
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import EQUAL_SHAPES
from npu_shim.rewriter.analysis import branches, order
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.session.clusters.moves import Group, Move, View, input_dtypes

ASSIGNS = frozenset(["AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"])
APPLIES = frozenset("ResourceApply" + rule for rule in (
    "AdaMax", "Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "Adam", "AddSign", "CenteredRMSProp", "Ftrl", "FtrlV2",
    "GradientDescent", "KerasMomentum", "Momentum", "PowerSign", "ProximalAdagrad", "ProximalGradientDescent",
    "RMSProp",
))  # fmt: skip
# op -> the input that must be a constant: the axes of a reduction, the dims of a fill
CONSTANTS = {
    "All": 1, "Any": 1, "Max": 1, "Mean": 1, "Min": 1, "Prod": 1, "Sum": 1, "ExpandDims": 1, "Fill": 0, "Reshape": 1,
}  # fmt: skip
WRITES = ASSIGNS | APPLIES
OPS = WRITES | frozenset(CONSTANTS) | frozenset([
    "Abs", "Add", "AddN", "AddV2", "Cast", "Const", "Div", "DivNoNan", "Equal", "Exp", "Floor", "Greater",
    "GreaterEqual", "Identity", "IsFinite", "IsInf", "IsNan", "L2Loss", "Less", "LessEqual", "Log", "Log1p",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "NoOp", "NotEqual", "OnesLike",
    "Pack", "Pow", "ReadVariableOp", "RealDiv", "Reciprocal", "Rsqrt", "Select", "SelectV2", "Sign", "Snapshot",
    "Sqrt", "Square", "Squeeze", "Sub", "Tanh", "ZerosLike",
])  # fmt: skip
# the dtypes that a device keeps in its own memory; TensorFlow expects int32 arguments of functions in the host's
ARGUMENTS = frozenset(
    dtype.as_datatype_enum
    for dtype in (tf.resource, tf.bool, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64)
)


def to_functional(module: Module, keep: Iterable[str], excluded: Callable[[Node], bool], minimum: int) -> None:
    """Makes the next conditional functional; changes nothing where there is none.

    Args:
        module: changed in place.
        keep: names of nodes or tensors that are fed, fetched or run.
        excluded: function of a Node to whether it stays out of XLA.
        minimum: least number of ops of updates that become a function.
    """
    graph = module.graph
    if tf.__version__.startswith("1.") or order.unordered(graph):  # on a cycle that is no v1 loop
        return
    fed = frozenset(graph[name] for name in map(source_of, keep) if name in graph)
    view = View(graph, branches.inside(graph, fed), fed)
    moves = (Move(view, group) for group in _groups(view, _movable(view, excluded)))
    move = next((move for move in moves if move.is_whole(WRITES) and move.size() >= minimum), None)
    if move is not None:
        move.apply()


def _movable(view: View, excluded: Callable[[Node], bool]) -> set[Node]:
    """The nodes in a branch of one predicate whose path from the Switch has only OPS."""
    movable: set[Node] = set()
    for node, inside in view.inside.items():
        if len(inside) != 1 or node.op not in OPS or node in view.fed or excluded(node):
            continue
        sources = (source for source in node.sources() if view.inside[source] or _stays(source, view))
        fits = _constants_known(view, node) and _arguments_fit(view, node) and _has_a_value(view, node)
        if fits and all(source in movable for source in sources):
            movable.add(node)
    return movable


def _stays(source: Node, view: View) -> bool:
    """Whether a node is a Switch of a reference, or one that may be fed."""
    return source.op == "RefSwitch" or (source.op == "Switch" and source in view.fed)


def _constants_known(view: View, node: Node) -> bool:
    number = CONSTANTS.get(node.op)
    return number is None or view.constant(node.inputs[number]) is not None


def _arguments_fit(view: View, node: Node) -> bool:
    """Whether every tensor from outside the branch can be an argument of a function."""
    pairs = zip(node.inputs, input_dtypes(node))
    outside = (value for value, dtype in pairs if not view.inside[value.node] and dtype not in ARGUMENTS)
    return all(view.constant(value) is not None for value in outside)


def _groups(view: View, movable: set[Node]) -> list[Group]:
    """The Groups of a graph, those of values first: they are between the gradients and the updates."""
    values: list[Group] = []
    updates: dict[tuple[Value, str], list[Node]] = {}
    for node, inside in view.inside.items():
        if node.op == "Merge" and EQUAL_SHAPES in node.attrs and not inside:
            predicates = {predicate for value in node.inputs for predicate, _ in view.along(value)}
            moves = all(source in movable for source in node.sources() if view.inside[source])
            if len(predicates) == 1 and moves and not node.output(1).users:
                values.append(Group(predicates.pop(), False, [node]))
        elif node in movable and node.op in WRITES:
            ((predicate, _),) = inside
            updates.setdefault((predicate, node.device), []).append(node)
    return values + [group for key, nodes in updates.items() for group in _in_rounds(view, key[0], nodes)]


def _in_rounds(view: View, predicate: Value, nodes: Iterable[Node]) -> Iterator[Group]:
    """Groups of the nodes by how often the way to them has left the predicate's branches: none waits for itself."""
    rounds: dict[Node, int] = {}
    within = {node for node, inside in view.inside.items() if any(branch[0] is predicate for branch in inside)}
    for node in view.inside:
        left = (rounds[source] + (source in within and node not in within) for source in node.sources()
                if source in rounds)  # fmt: skip
        rounds[node] = max(left, default=0)
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        groups.setdefault(rounds[node], []).append(node)
    return (Group(predicate, True, targets) for targets in groups.values())


def _has_a_value(view: View, node: Node) -> bool:
    """Whether the step also reads the variable that the node assigns: XLA's If cannot initialize a variable."""
    if node.op != "AssignVariableOp":
        return True
    handle = behind(node.inputs[0], ("Identity", "Switch")).node
    users = order.descendants([handle], lambda user: user is handle or user.op in ("Identity", "Switch"))
    reads = (user for user in users if user.op == "ReadVariableOp" or user.op in APPLIES)
    return any(view.inside[read] in (frozenset(), view.inside[node]) for read in reads)
