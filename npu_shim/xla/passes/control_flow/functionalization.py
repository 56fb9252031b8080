"""Converts TensorFlow 1's loops and conditionals (Enter, Switch, Merge, ...) to While and If, which XLA compiles.

The conversion itself is TensorFlow's FunctionalizeControlFlow. It does not size the Stacks that keep a loop's values
for its gradient: XLA needs a fixed size, and TensorFlow 1 leaves it open. The size follows from the conditions of the
loops that push to the Stack (trip_counts.py):

    while i < 5:  while j < 3:  push(stack, x)      becomes: stack = StackV2(max_size=15)
"""

from __future__ import annotations

import collections
import re
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.native import functionalize
from npu_shim.xla.passes import function_names
from npu_shim.xla.passes.control_flow import branch_stacks, gradient_sinking, known_branches, loop_pairs
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

V1_OPS = frozenset(["Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"])
JOINED_GRADIENTS = re.compile(r"Switch_grad/cond_grad\S* .*not in any CondContext")
ROWS = (
    "one branch takes rows of a variable and the other all of it, and TensorFlow joins their gradients outside of "
    "the tf.cond: take the rows (tf.gather) before it, or run the step in the session instead"
)
IN_SESSION = "run the step in the session instead, where NPU_SHIM_XLA=on compiles all but such loops"
UNBOUND = (
    "node '%s' (StackV2) keeps values of loop '%s' for its gradient, and XLA must know how many: no part of the loop's "
    "condition compares a counter to a constant or to a size of a shape. Give tf.while_loop maximum_iterations, or %s"
)


def to_functional(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef without v1 control flow; the same object if there is none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        keep: names of the nodes that are fetched or run.

    Raises:
        PlanError: TensorFlow cannot convert a loop or conditional, or the size of a Stack is unknown.
    """
    bodies = [function.node_def for function in graph_def.library.function]
    if not any(node.op in V1_OPS for nodes in [graph_def.node, *bodies] for node in nodes):
        return graph_def
    if any(node.op == "StackV2" for node in graph_def.node):
        graph_def = known_branches.taken(graph_def, keep)
        graph_def = static_shapes.fold(loop_pairs.size_arrays(graph_def), keep)
        graph_def = bound_stacks(branch_stacks.on_both_sides(graph_def))
        graph_def = gradient_sinking.after_loops(graph_def, keep)
    try:
        return function_names.ordered(functionalize.functionalize(_without_waits_for_itself(graph_def)), graph_def)
    except functionalize.FunctionalizeError as reason:
        way_out = ROWS if JOINED_GRADIENTS.search(str(reason)) else IN_SESSION
        raise PlanError("a loop or tf.cond has no functional form: %s; %s" % (reason, way_out)) from reason


def bound_stacks(graph_def: Any) -> Any:
    """Returns a GraphDef in which every Stack without a size is sized by its loops' trip counts.

    Raises:
        PlanError: a loop's condition does not bound its trip count; the error names the Stack's node.
    """
    nodes = {node.name: node for node in graph_def.node}
    open_ones = [node.name for node in graph_def.node if node.op == "StackV2" and _size(node, nodes) < 0]
    if not open_ones:
        return graph_def
    frames, pairs = loop_pairs.frames_of_stacks(graph_def, nodes, "StackPushV2"), loop_pairs.of(graph_def)
    exact = {frame: pair.count for frame, pair in pairs.items() if pair.count is not None}
    counts = {**trip_counts.at_most(graph_def), **exact}
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for stack in (node for node in copy.node if node.name in open_ones):
        size = 1
        for frame in frames.get(stack.name, ()):
            if frame not in counts:
                counts[frame] = loop_pairs.count_of(graph_def, frame, pairs, UNBOUND % (stack.name, frame, IN_SESSION))
            size *= counts[frame]
        limit = copy.node.add(name=_unused(stack.name + "/size", nodes), op="Const")
        limit.attr["dtype"].type = tf.int32.as_datatype_enum
        limit.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(max(size, 1), tf.int32))
        stack.input[0] = limit.name
    return copy


def _without_waits_for_itself(graph_def):
    """Removes control inputs by which a loop's initial values wait for the loop itself.

    Gradients built under tf.control_dependencies have them, on the counter of the forward loop's iterations. Once the
    loop is a single While node, it would wait for itself.
    """
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    nodes = {node.name: node for node in copy.node}
    consumers, entries = collections.defaultdict(list), collections.defaultdict(list)
    for node in copy.node:
        for source in map(source_of, node.input):
            if nodes[source].op != "NextIteration":  # a back edge does not make the loop wait
                consumers[source].append(node.name)
        if node.op == "Enter":
            entries[node.attr["frame_name"].s].append(node)
    for entering in entries.values():  # a loop that one of its values waits for waits as a whole
        for enter in entering:
            consumers[enter.name] += [other.name for other in entering if other is not enter]
    for entering in entries.values():
        starts = [nodes[source_of(node.input[0])] for node in entering]
        candidates = [*entering, *(node for node in starts if node.op == "Const")]
        waiting = [node for node in candidates if any(text[0] == "^" for text in node.input)]
        behind = _behind([node.name for node in entering], consumers) if waiting else ()
        for node in waiting:
            kept = [text for text in node.input if text[0] != "^" or source_of(text) not in behind]
            del node.input[:]
            node.input.extend(kept)
    return copy


def _behind(names, consumers):
    """Names of all direct and indirect consumers of nodes."""
    pending, behind = list(names), set()
    while pending:
        for consumer in consumers[pending.pop()]:
            if consumer not in behind:
                behind.add(consumer)
                pending.append(consumer)
    return behind


def _size(stack, nodes):
    source = nodes[source_of(stack.input[0])]
    return int(tf.make_ndarray(source.attr["value"].tensor)) if source.op == "Const" else 0


def _unused(name, nodes):
    while name in nodes:
        name += "_"
    return name
