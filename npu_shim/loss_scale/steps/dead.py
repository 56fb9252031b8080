"""Gradients that TensorFlow never computes: of a loop, made under what waits for that loop.

    y = while_loop(...)    update: moving mean of y    with control_dependencies([update]): gradients(loss(y), w)

The gradient counts the loop's iterations from within the loop: its counter enters the loop when the update is done, and
the loop has ended by then. TensorFlow (1.15 to 2.21, version 1 loops) then gives no value and no error: in plain
training such weights keep their initial values. Of a step that tests its gradients, nothing is applied at all.
"""

from __future__ import annotations

import logging
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.walks import reached

LOG = logging.getLogger("npu_shim")
SAID = "npu_shim/dead_gradients"  # collection of a graph: names of the loops that were named


def tell(graph: tf.Graph) -> None:
    """Logs one line for each loop of a graph whose gradients are never computed; once for each loop."""
    said = graph.get_collection_ref(SAID)
    for op in graph.get_operations():
        if op.type != "Enter" or not op.inputs[0].op.control_inputs:
            continue
        frame = op.get_attr("frame_name").decode()
        if frame not in said and _waits_for(op.inputs[0].op, frame):
            said.append(frame)
            LOG.warning(
                "npu_shim: the gradients of loop '%s' are made under tf.control_dependencies on '%s', which waits for "
                "that loop: TensorFlow never computes them, so no step is applied. Call compute_gradients outside of "
                "the control dependencies, and apply_gradients within",
                frame.rpartition("/")[0] or frame,
                op.inputs[0].op.control_inputs[0].name,
            )


def _waits_for(start: Any, frame: str) -> bool:
    """Whether what a loop's counter starts from waits for the end of the loop."""
    before = reached(list(start.control_inputs), lambda op: [*op.control_inputs, *(tensor.op for tensor in op.inputs)])
    return any(op.type == "Exit" and _frame(op) == frame for op in before)


def _frame(leaving: Any) -> str | None:
    """The frame that an Exit leaves."""
    context = leaving._get_control_flow_context()
    return None if context is None else str(context.name)
