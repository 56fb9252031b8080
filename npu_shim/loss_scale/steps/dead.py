"""Gradients of version 1 loops that TensorFlow never computes: those made under tf.control_dependencies.

    with control_dependencies([update]): gradients(loss(while_loop(.., start)), w)

Two kinds (TensorFlow 2.15.1, also without Grappler). The gradient of what a loop starts with leaves the loop by an op
that waits for the loop's body, which has no next turn. And where the update waits for the loop itself (a moving mean of
its result), what counts the loop's turns enters it too late if there are more than parallel_iterations. Neither is an
error: in plain training such weights keep their values. Of a step that tests all of its gradients nothing is applied.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.walks import givers, reached

LOG = logging.getLogger("npu_shim")
SAID = "npu_shim/dead_gradients"  # collection of a graph: names of the ops that were spoken of
BACK_EDGES = ("NextIteration", "RefNextIteration")
REMEDY = "then no step is applied. Call compute_gradients outside of the control dependencies, apply_gradients within"


def tell(gradients: Iterable[tf.Tensor]) -> None:
    """Logs a line for each op that keeps TensorFlow from computing gradients; once for each op."""
    starts = [gradient.op for gradient in gradients]
    if not starts or not any(op.type == "Exit" for op in starts[0].graph.get_operations()):
        return
    said = starts[0].graph.get_collection_ref(SAID)
    ended = functools.lru_cache(maxsize=None)(_ended_before)  # many ops enter loops under the same control inputs
    for op in reached(starts, lambda op: [tensor.op for tensor in op.inputs]):
        why = None if op.name in said else _why(op, ended)
        if why is not None:
            said.append(op.name)
            LOG.warning("npu_shim: %s, and %s", why, REMEDY)


def _why(op: Any, ended: Callable[[tuple[Any, ...]], frozenset[str]]) -> str | None:
    """Why what depends on an op has no value, or may have none; None where it does."""
    if op.type == "Exit" and _waits_for_its_loop(op):
        return (
            "'%s' is a gradient of what a loop starts with, made under tf.control_dependencies: TensorFlow never "
            "computes it" % op.name
        )
    awaited = tuple(op.inputs[0].op.control_inputs) if op.type == "Enter" else ()
    frame = op.get_attr("frame_name").decode() if awaited else ""
    if frame in ended(awaited):
        return (
            "gradients of loop '%s' are made under tf.control_dependencies on '%s', which waits for that loop: "
            "TensorFlow does not compute them if it has more than parallel_iterations turns"
            % (frame.rpartition("/")[0] or frame, awaited[0].name)
        )
    return None


def _waits_for_its_loop(leaving: Any) -> bool:
    """Whether an Exit takes what waits, by control inputs, for the body of its loop."""
    context = leaving._get_control_flow_context()
    if context is None:  # of an imported graph that was saved without
        return False
    pivot = context.GetControlPivot().op
    return any(op is pivot for op in reached([leaving.inputs[0].op], lambda op: op.control_inputs))


def _ended_before(awaited: tuple[Any, ...]) -> frozenset[str]:
    """The names of the frames of the loops that end before one of these ops runs.

    What the turn before has run, behind the back edge of a loop around them, is no part of this turn: there the same
    loop ended in another frame.
    """
    before = reached(awaited, lambda op: () if op.type in BACK_EDGES else givers(op))
    contexts = (op._get_control_flow_context() for op in before if op.type == "Exit")
    return frozenset(str(context.name) for context in contexts if context is not None)
