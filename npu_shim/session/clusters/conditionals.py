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

import collections
from typing import Any, Callable, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import EQUAL_SHAPES
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.clusters.branches import NONE, Branches
from npu_shim.session.clusters.moves import Move, constant_behind, input_dtypes

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


def functional(
    graph_def: tf.GraphDef, keep: Iterable[str], left_out: Callable[[tf.NodeDef], bool], minimum: int,
    check: Callable[[str, tf.GraphDef, tf.GraphDef], Any] = lambda name, before, after: None,
) -> tf.GraphDef:  # fmt: skip
    """Returns a GraphDef with functional conditionals; the given one itself if there is nothing to convert.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        keep: names of nodes or tensors that are fed, fetched or run.
        left_out: function of a NodeDef to whether it stays out of XLA.
        minimum: least number of ops of updates that become a function.
        check: called with "conditionals" and the graph before and after each conversion.
    """
    if not any(node.op == "Merge" for node in graph_def.node):
        return graph_def
    if tf.__version__.startswith("1."):
        return graph_def
    keep = set(map(source_of, keep))
    while True:
        view = Branches(graph_def, keep)
        if len(view.nodes) < len(graph_def.node):
            return graph_def  # a cycle that is no v1 loop
        groups = _find_groups(view, _movable(view, keep, left_out))
        moves = (Move(view, group) for group in groups)
        move = next((move for move in moves if move.is_whole(WRITES) and move.size() >= minimum), None)
        if move is None:
            return graph_def
        converted = move.result(graph_def, keep)
        check("conditionals", graph_def, converted)
        graph_def = converted


Group = collections.namedtuple("Group", "predicate updates targets")
Group.__doc__ = """The nodes that become one node.

Attributes:
    predicate: tensor that decides.
    updates: whether variables are written.
    targets: names of the ops that write to variables, or of one Merge.
"""


def _movable(view, keep, left_out):
    """Names of the nodes in a branch of one predicate whose path from the Switch has only OPS."""
    movable = set()
    for name, node in view.nodes.items():
        if len(view.of[name]) != 1 or node.op not in OPS or name in keep or left_out(node):
            continue
        sources = [source_of(text) for text in node.input]
        inside = [source for source in sources if view.of[source] != NONE or _stays(view.nodes[source], keep)]
        fits = _constants_known(view, node) and _arguments_fit(view, node) and _has_a_value(view, node)
        if fits and all(source in movable for source in inside):
            movable.add(name)
    return movable


def _stays(source, keep):
    """Whether a node is a Switch of a reference, or one that may be fed."""
    return source.op == "RefSwitch" or (source.op == "Switch" and source.name in keep)


def _constants_known(view, node):
    number = CONSTANTS.get(node.op)
    return number is None or constant_behind(view, node.input[number]) is not None


def _arguments_fit(view, node):
    """Whether every tensor from outside the branch can be an argument of a function."""
    dtypes = input_dtypes(node)
    for text, dtype in zip(node.input, dtypes):
        if view.of[source_of(text)] == NONE and dtype not in ARGUMENTS and constant_behind(view, text) is None:
            return False
    return True


def _find_groups(view, movable):
    """The Groups of a graph, those of values first: they are between the gradients and the updates."""
    values, updates = [], {}
    for name, node in view.nodes.items():
        if node.op == "Merge" and EQUAL_SHAPES in node.attr and view.of[name] == NONE:
            predicates = {predicate for text in node.input if text[0] != "^" for predicate, _ in view.along(text)}
            sources = [source_of(text) for text in node.input]
            inside = all(source in movable for source in sources if view.of[source] != NONE)
            if len(predicates) == 1 and inside and not _index_is_used(view, name):
                predicate = predicates.pop()
                values.append(Group(predicate, False, [name]))
        elif name in movable and node.op in WRITES:
            ((predicate, _),) = view.of[name]
            updates.setdefault((predicate, node.device), []).append(name)
    return values + [group for key, names in updates.items() for group in _in_rounds(view, key[0], names)]


def _in_rounds(view, predicate, names):
    rounds, by_round = view.rounds(predicate), {}
    for name in names:
        by_round.setdefault(rounds[name], []).append(name)
    return [Group(predicate, True, names) for names in by_round.values()]


def _index_is_used(view, merge):
    texts = {text for name in view.consumers[merge] for text in view.nodes[name].input}
    return "%s:1" % merge in texts


def _has_a_value(view, node):
    """Whether the step also reads the variable that the node assigns: XLA's If cannot initialize a variable."""
    if node.op != "AssignVariableOp":
        return True
    handle = _variable_handle(view, node)
    for name in _variable_users(view, handle):
        reads = view.nodes[name].op == "ReadVariableOp" or view.nodes[name].op in APPLIES
        if reads and (view.of[name] == NONE or view.of[name] == view.of[node.name]):
            return True
    return False


def _variable_handle(view, node):
    source = view.nodes[source_of(node.input[0])]
    while source.op in ("Identity", "Switch"):
        source = view.nodes[source_of(source.input[0])]
    return source.name


def _variable_users(view, handle):
    users, pending = [], [handle]
    while pending:
        for name in view.consumers[pending.pop()]:
            (pending if view.nodes[name].op in ("Identity", "Switch") else users).append(name)
    return users
