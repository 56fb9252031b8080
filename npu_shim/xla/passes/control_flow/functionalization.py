"""Converts TensorFlow 1's loops and conditionals (Enter, Switch, Merge, ...) to While and If, which XLA compiles.

The conversion itself is TensorFlow's FunctionalizeControlFlow. It does not size the Stacks that keep a loop's values
for its gradient: XLA needs a fixed size, and TensorFlow 1 leaves it open. The size follows from the conditions of the
loops that push to the Stack (trip_counts.py):

    while i < 5:  while j < 3:  push(stack, x)      becomes: stack = StackV2(max_size=15)
"""

from __future__ import annotations

import re
from typing import Any, Iterable

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.session.native import functionalize
from npu_shim.xla.passes import function_names
from npu_shim.xla.passes.control_flow import branch_stacks, gradient_sinking, known_branches, loop_pairs, overruns
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

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


def to_functional(module: Module, context: Any = None) -> None:
    """Converts v1 control flow.

    Raises:
        PlanError: TensorFlow cannot convert a loop or conditional, or the size of a Stack is unknown.
        ConfigError: a result is inside of a loop or tf.cond.
    """
    if V1_OPS.isdisjoint(module.ops()):
        return
    if any(node.op == "StackV2" for node in module.graph):
        _size_stacks(module)
    _eliminate_self_waits(module.graph)
    places, graph_def = module.results(), graphdef.write(module)
    try:
        graph_def = function_names.ordered(functionalize.functionalize(graph_def), graph_def)
    except functionalize.FunctionalizeError as reason:
        way_out = ROWS if JOINED_GRADIENTS.search(str(reason)) else IN_SESSION
        raise PlanError("a loop or tf.cond has no functional form: %s; %s" % (reason, way_out)) from reason
    left = {node.name for node in graph_def.node}
    gone = [name for name, text in places.items() if source_of(text) not in left]
    if gone:
        expected = "expected the result of a loop or tf.cond, or a node outside of them"
        raise ConfigError("fetch '%s' is inside of a loop or tf.cond, %s" % (gone[0], expected))
    graphdef.replace(module, graph_def)


def _size_stacks(module: Module) -> None:
    """Gives the Stacks of loops their sizes, and leaves out what need not be on one."""
    known_branches.take(module)
    loop_pairs.size_arrays(module.graph)
    keep = [source_of(text) for text in module.results().values()]
    graphdef.replace(module, static_shapes.fold(graphdef.write(module), keep))
    branch_stacks.on_both_sides(module)
    gradients = loop_pairs.gradients(module.graph)
    bounds = bound_stacks(module.graph)
    gradient_sinking.sink(module)
    overruns.mark(module.graph, bounds, gradients)


def bound_stacks(graph: Graph) -> dict[str, int]:
    """Sizes every Stack without a size by its loops' trip counts.

    Returns:
        frame name -> largest trip count, of the loops whose conditions do not say it exactly.

    Raises:
        PlanError: a loop's condition does not bound its trip count; the error names the Stack's node.
    """
    open_ones = [node for node in graph if node.op == "StackV2" and _is_open(node.inputs[0].node)]
    if not open_ones:
        return {}
    frames, pairs = loop_pairs.frames_of_stacks(graph, "StackPushV2"), loop_pairs.of(graph)
    exact = {frame: pair.count for frame, pair in pairs.items() if pair.count is not None}
    counts, taken = {**trip_counts.at_most(graph), **exact}, set()
    certain = exact.keys() | trip_counts.exact(graph)
    for stack in open_ones:
        size = 1
        for frame in frames.get(stack, ()):
            taken.add(frame)
            if frame not in counts:
                certain.add(frame)
                counts[frame] = loop_pairs.count_of(graph, frame, pairs, UNBOUND % (stack.name, frame, IN_SESSION))
            size *= counts[frame]
        stack.set_input(0, loop_pairs.constant(graph, stack.name + "/size", max(size, 1)))
    return {frame: counts[frame] for frame in sorted(taken - certain)}


def _is_open(size: Node) -> bool:
    return size.op == "Const" and size.attrs["value"].numbers()[0] < 0


def _eliminate_self_waits(graph: Graph) -> None:
    """Removes control inputs by which a loop's initial values wait for the loop itself.

    Gradients built under tf.control_dependencies have them, on the counter of the forward loop's iterations. Once the
    loop is a single While node, it would wait for itself.
    """
    entries: dict[bytes, list[Node]] = {}
    for node in graph:
        if node.op == "Enter":
            entries.setdefault(node.attrs["frame_name"], []).append(node)
    for entering in entries.values():
        starts = [node.inputs[0].node for node in entering]
        waiting = [node for node in [*entering, *starts] if node.op in ("Enter", "Const") and node.controls]
        behind = _behind(entering, entries.values()) if waiting else {}
        for node in waiting:
            if not behind.keys().isdisjoint(node.controls):
                node.set_controls([control for control in node.controls if control not in behind])


def _behind(entering: Iterable[Node], entries: Iterable[list[Node]]) -> dict[Node, None]:
    """What waits for nodes; a loop that one of its values waits for waits as a whole, without its next iterations."""
    behind: dict[Node, None] = {}
    fresh = list(entering)
    while fresh:
        behind.update(order.descendants(fresh, lambda node: node.op != "NextIteration"))
        waiting = (others for others in entries if not behind.keys().isdisjoint(others))
        fresh = [node for others in waiting for node in others if node not in behind]
    return behind
