"""Loops and conditionals of TensorFlow 1 (Enter, Switch, Merge, ...) as functional While and If, which XLA compiles.

The conversion itself is TensorFlow's own, FunctionalizeControlFlow. What it leaves to do: XLA gives a Stack, which
keeps a loop's values for its gradient, a fixed size, and TensorFlow 1 leaves that open. The loop's condition tells it:

    while i < n and ...:  push(stack, x)      i counts up from 0, n is a constant or comes from shapes
    becomes: stack = StackV2(max_size=n)
"""

import tensorflow.compat.v1 as tf

from npu_shim.native import functionalize
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla import static_shapes
from npu_shim.xla.pruning import source_of

V1_OPS = frozenset(["Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"])
SHAPE_OPS = ("Shape", "ShapeN", "Size", "Rank")  # their values are known when XLA compiles
PASSES_ON = ("Identity", "Enter", "Switch")
IN_SESSION = "run the step in the session instead, where NPU_SHIM_XLA=on compiles all but such loops"


def to_functional(graph_def, keep):
    """Returns a GraphDef without v1 control flow; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        keep: names of the nodes that are fetched or run.

    Raises:
        PlanError: a loop or conditional that TensorFlow cannot convert, or a Stack whose size nothing tells.
    """
    bodies = [function.node_def for function in graph_def.library.function]
    if not any(node.op in V1_OPS for nodes in [graph_def.node, *bodies] for node in nodes):
        return graph_def
    if any(node.op == "StackV2" for node in graph_def.node):
        graph_def = bound_stacks(static_shapes.fold(graph_def, keep))
    try:
        return functionalize.functionalize(graph_def)
    except functionalize.FunctionalizeError as reason:
        raise PlanError("a loop or tf.cond has no functional form: %s; %s" % (reason, IN_SESSION)) from reason


def bound_stacks(graph_def):
    """Returns a GraphDef in which every Stack without a size has that of its loop.

    Raises:
        PlanError: the condition of the Stack's loop does not tell, named with the Stack's node.
    """
    nodes = {node.name: node for node in graph_def.node}
    if not any(node.op == "StackV2" and _size(node, nodes) < 0 for node in graph_def.node):
        return graph_def
    bounds = _trip_counts(graph_def, nodes)
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    frames = _frames_of_stacks(graph_def, nodes)
    for node in made.node:
        if node.op == "StackV2" and _size(node, nodes) < 0:
            bound = bounds.get(frames.get(node.name))
            if bound is None:
                raise PlanError(
                    "node '%s' (StackV2) keeps values of loop '%s' for its gradient, and XLA must know how many: no "
                    "part of the loop's condition compares a counter to a constant or to a size of a shape. Give "
                    "tf.while_loop maximum_iterations, or %s" % (node.name, frames.get(node.name, "?"), IN_SESSION)
                )
            node.input[0] = bound
    return made


def _size(stack, nodes):
    source = nodes[source_of(stack.input[0])]
    return int(tf.make_ndarray(source.attr["value"].tensor)) if source.op == "Const" else 0


def _frames_of_stacks(graph_def, nodes):
    """Name of the forward loop of each Stack: the frame that its handle enters to be pushed to."""
    frames = {}
    for node in graph_def.node:
        if node.op == "StackPushV2":
            entered = nodes[source_of(node.input[0])]
            stack = _origin(node.input[0], nodes)
            if stack.op == "StackV2" and entered.op == "Enter":
                frames[stack.name] = entered.attr["frame_name"].s
    return {stack: frame.decode() for stack, frame in frames.items()}


def _trip_counts(graph_def, nodes):
    """Frame name -> the tensor (outside of the loop) that no iteration's number reaches, where one is known."""
    counts = {}
    for node in graph_def.node:
        if node.op != "LoopCond":
            continue
        for less in _conjuncts(node.input[0], nodes):
            limit = nodes[source_of(less.input[1])]
            if limit.op == "Enter" and _is_static(limit.input[0], nodes) and _counts_up(less.input[0], nodes):
                counts[limit.attr["frame_name"].s.decode()] = limit.input[0]
    return counts


def _conjuncts(text, nodes):
    """The Less nodes that must all hold for a condition to hold."""
    node = nodes[source_of(text)]
    if node.op in ("LogicalAnd", "Identity"):
        return [less for part in node.input if part[0] != "^" for less in _conjuncts(part, nodes)]
    return [node] if node.op == "Less" else []


def _counts_up(text, nodes):
    """Whether a tensor is a loop variable that starts at 0 or above and grows by 1 or more."""
    merge = nodes[source_of(text)]
    if merge.op != "Merge":
        return False
    start, following = (nodes[source_of(part)] for part in merge.input[:2])
    if following.op != "NextIteration":
        return False
    add = nodes[source_of(following.input[0])]
    if add.op not in ("Add", "AddV2"):
        return False
    parts = [_origin(part, nodes) for part in add.input[:2]]
    grows = any(_constant(part, 1) for part in parts) and any(part.name == merge.name for part in parts)
    return grows and _constant(_origin(start.name, nodes), 0)


def _constant(node, least):
    if node.op != "Const":
        return False
    value = tf.make_ndarray(node.attr["value"].tensor)
    return value.shape == () and value >= least


def _origin(text, nodes):
    """The node behind Identity, Enter and Switch."""
    node = nodes[source_of(text)]
    while node.op in PASSES_ON:
        node = nodes[source_of(node.input[0])]
    return node


def _is_static(text, nodes):
    """Whether a tensor is computed from constants and shapes alone."""
    pending, seen = [source_of(text)], set()
    while pending:
        node = nodes[pending.pop()]
        if node.name in seen or node.op in SHAPE_OPS or node.op == "Const":
            continue
        seen.add(node.name)
        inputs = [source_of(part) for part in node.input if part[0] != "^"]
        if not inputs:
            return False
        pending += inputs
    return True
