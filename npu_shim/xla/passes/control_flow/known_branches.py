"""Keeps one side of a tf.cond whose predicate is known when the step is compiled: by shapes, constants, or `constants`.

    s = Switch(x, p)   a = Exp(s:1)   m = Merge(s:0, a)   and p is True     becomes     s = x   a = Exp(s)   m = a

The gradient of a loop in a tf.cond needs it. The loop hands its values to its gradient on a Stack, and XLA cannot fill
one in a conditional that may not run. tf.contrib.crf asks in this way whether a sequence has one element.
"""

from __future__ import annotations

import collections
from typing import Iterable, Mapping

import numpy as np

from npu_shim.rewriter.analysis.branches import SWITCHES
from npu_shim.rewriter.analysis.order import MERGES
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.control_flow import loop_pairs
from npu_shim.xla.passes.dead_control_dependencies import keep_needed
from npu_shim.xla.passes.legalize.facts import Facts
from npu_shim.xla.passes.legalize.site import NotConstant

ENTERS = ("Switch", "Enter", "Identity")  # what leads a handle into loops and branches
TRIGGER = "ControlTrigger"  # runs whether what it waits for is alive or not
INDEX = "/value_index"  # a Merge's second output, as a node
OPEN = (
    "the loop with node '%s' (StackPushV2) has a gradient and stands in a tf.cond, and XLA must know its predicate "
    "'%s', which depends on what the step is given or computes (see `constants`); move the condition into the loop's, "
    "or run the step in the session instead"
)


def take(module: Module) -> None:
    """Makes each tf.cond with a known predicate the side that it takes; none if a result is on another side.

    Args:
        module: has v1 control flow and Placeholders of full shapes.

    Raises:
        NotConstant: a loop with a gradient is in a tf.cond with an unknown predicate; the error names the predicate.
    """
    graph = module.graph
    around = _branches_around_loops(graph)
    sides = _known_sides(module) if around else {}
    for push, switch in around.items():
        if switch not in sides:
            raise _not_constant(push, switch)
    alive = _alive(graph, sides) if around else set()
    if not around or not alive.issuperset(value.node for value in graph.results.values()):
        return
    for node, living in _decided_merges(graph, sides, alive).items():
        index = loop_pairs.constant(graph, node.name + INDEX, living)
        index.node.set_controls([node])
        node.output(1).replace_by(index)
        node.forward(node.inputs[living], node.attrs["T"])
    for node in filter(alive.__contains__, sides):
        value, predicate = node.inputs
        node.output(1).replace_by(node.value)
        node.forward(value, node.attrs["T"])
        node.set_controls([*node.controls, predicate.node])
    for node in graph:  # only a ControlTrigger waits for others
        if node in alive and not alive.issuperset(node.controls):
            node.set_controls([control for control in node.controls if control in alive])
    keep_needed(graph)
    take(module)  # the side that is taken may hold a tf.cond with a loop


def _branches_around_loops(graph: Graph) -> dict[Node, Node]:
    """Maps each push of a loop in a tf.cond to the Switch through which the Stack enters that tf.cond."""
    around = {}
    for push in (node for node in graph if node.op == "StackPushV2"):
        node, in_loop = push.inputs[0].node, False
        while node.op in ENTERS:
            if node.op == "Switch" and in_loop:
                around[push] = node  # the outermost
            in_loop = in_loop or node.op == "Enter"
            node = node.inputs[0].node
    return around


def _not_constant(push: Node, switch: Node) -> NotConstant:
    """The error that names a Switch's predicate where it enters the tf.cond: inside it cannot be fetched."""
    user, number = switch, 1
    while user.inputs[number].node.op == "Identity":
        user, number = user.inputs[number].node, 0
    return NotConstant(OPEN % (push.name, user.inputs[number]), user.name, number)


def _known_sides(module: Module) -> dict[Node, int]:
    """Maps each Switch with a known predicate to its living output."""
    facts, by_predicate, sides = Facts(module.graph), {}, {}
    for node in module.graph:
        if node.op in SWITCHES and node.inputs[1].node.op != "LoopCond":
            predicate = node.inputs[1]
            if predicate not in by_predicate:
                by_predicate[predicate] = facts.constant(predicate)
            if by_predicate[predicate] is not None:
                sides[node] = int(bool(np.asarray(by_predicate[predicate])))
    return sides


def _alive(graph: Graph, sides: Mapping[Node, int]) -> set[Node]:
    """The nodes that may run.

    A Merge runs when one of its inputs is alive, any other node when all are; a loop when all that enters it is alive:
    the counter of a loop's gradient enters a loop in a tf.cond from outside of the tf.cond.
    """
    inputs = {node: [*node.inputs, *(control.output(CONTROL) for control in node.controls)] for node in graph}
    entering: dict[bytes, list[Value]] = collections.defaultdict(list)
    consumers: dict[Node, list[Node]] = collections.defaultdict(list)
    alive: set[Node] = set()
    enters = [node for node in graph if node.op == "Enter"]
    for node in enters:
        entering[node.attrs["frame_name"]] += inputs[node]
    inputs.update((node, entering[node.attrs["frame_name"]]) for node in enters)
    for node, values in inputs.items():
        for source in dict.fromkeys(value.node for value in values):
            consumers[source].append(node)
    pending = [node for node, values in inputs.items() if not values or node.op == TRIGGER]
    while pending:
        node = pending.pop()
        if node not in alive and _lives(node.op, inputs[node], alive, sides):
            alive.add(node)
            pending += consumers[node]
    return {node for node in alive if node.op != TRIGGER or not alive.isdisjoint(node.sources())}


def _lives(op: str, inputs: Iterable[Value], alive: set[Node], sides: Mapping[Node, int]) -> bool:
    if op == TRIGGER:
        return True
    living = [_is_alive(value, alive, sides) for value in inputs if value.index != CONTROL]
    enough = any(living) if op in MERGES else all(living)
    return enough and all(value.node in alive for value in inputs if value.index == CONTROL)


def _is_alive(value: Value, alive: set[Node], sides: Mapping[Node, int]) -> bool:
    return value.node in alive and sides.get(value.node, value.index) == value.index


def _decided_merges(graph: Graph, sides: Mapping[Node, int], alive: set[Node]) -> dict[Node, int]:
    """Maps each living Merge with one living input, of several, to the number of that input."""
    decided_merges = {}
    for node in graph:
        if node.op in MERGES and node in alive:
            living = [number for number, value in enumerate(node.inputs) if _is_alive(value, alive, sides)]
            if len(living) == 1:
                decided_merges[node] = living[0]
    return decided_merges
