"""Bounds the lists in which a loop of version 2 keeps values for its gradient, whose largest length XLA must know.

    kept = EmptyTensorList(max_num_elements=-1);  While(.., kept), condition i < 3, body TensorListPushBack(kept, x)
    becomes     EmptyTensorList(max_num_elements=3)

TensorFlow takes the number from `maximum_iterations` alone; the condition says as much.
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes.control_flow import loop_pairs, overruns
from npu_shim.xla.passes.shapes import while_counts
from npu_shim.xla.passes.shapes.list_sizes import Answers, body_of

EMPTY, PUSH = "EmptyTensorList", "TensorListPushBack"


def bound(module: Module, context: Any = None) -> None:
    """Gives the lists that loops append to their largest lengths, where the loops' conditions bound these.

    Args:
        module: of functional control flow, with Placeholders of full shapes.
        context: not used.
    """
    answers = Answers(module)
    for graph in answers.graphs:
        for loop in graph:
            if calls.kind(loop) == LOOP:
                _bound_lists(loop, answers)


def _bound_lists(loop: Node, answers: Answers) -> None:
    kept = [behind(value).node for place, value in enumerate(loop.inputs) if _is_appended_to(loop, place)]
    unbounded = [node for node in kept if node.op == EMPTY and (answers.number(node.inputs[1]) or 0) < 0]
    most = while_counts.at_most(loop, answers) if unbounded else None
    if most is None:
        return
    for node in unbounded:  # XLA compiles the body of a loop that never runs, too
        node.set_input(1, loop_pairs.constant(node.graph, node.name + "/most", max(most, 1)))
    if not while_counts.is_exact(loop, answers):
        _check(loop, most, answers)


def _check(loop: Node, most: int, answers: Answers) -> None:
    """Has floats tell where the loop has run longer: its own results, and those of the loops that take what it kept.

    Where something else takes that, as the list of a loop around it does, what it kept tells.
    """
    for place in range(len(loop.inputs)):
        start_and_step = while_counts.counter(loop, place, answers)
        if start_and_step is not None:
            start, step = start_and_step
            kept = [number for number in range(len(loop.inputs)) if _is_appended_to(loop, number)]
            takers = dict.fromkeys(user for number in kept for user in loop.output(number).users)
            loops = [user for user in takers if calls.kind(user) == LOOP]
            results = [one.output(k) for one in dict.fromkeys([loop, *loops]) for k in range(len(one.inputs))]
            overruns.check(loop.output(place), start + most * step, results)
            if len(loops) < len(takers):
                body = body_of(loop)
                pushes = [behind(body.returned[number]).node for number in kept]
                overruns.spoil(body.arguments[place].value, start + most * step, pushes)
            return


def _is_appended_to(loop: Node, place: int) -> bool:
    """Whether an iteration appends one value to a loop variable, and does nothing else to it."""
    body = body_of(loop)
    last = behind(body.returned[place]).node
    return last.op == PUSH and behind(last.inputs[0]).node is body.arguments[place]
