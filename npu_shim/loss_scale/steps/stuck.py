"""Warnings about a scale that can shrink no further while steps are still skipped, or that starts too high."""

from __future__ import annotations

import sys
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.schedule import FLOAT16_OVERFLOW, skipped_until

ANSWERS = ("warn", "raise", "ignore")
LOWEST = 2.0**-14  # float16's smallest normal number: by a smaller scale gradients are lost before they overflow
HINT = (
    "Scaling cannot help here: look for an infinity in the forward pass (an epsilon that is 0 in float16, a mask of "
    "-1e9, a variance that overflows) and keep that op in float32."
)
ABOVE = (
    "This scale goes no lower. If the gradients are finite in float32, a smaller one lets them pass: give the schedule "
    "a min_scale (npu_shim.loss_scale.policy(..., min_scale=2.0**-14)), or take bfloat16, which needs none; else look "
    "for an infinity in the forward pass."
)


def hint(floor: float) -> str:
    """Returns what to do where steps are skipped at the smallest scale, a float."""
    return HINT if floor <= LOWEST else ABOVE


def report(
    answer: str,
    after: int,
    stuck_steps: tf.Tensor,
    scale: tf.Tensor,
    floor: float,
    sizes: tf.Tensor | None,
    names: Sequence[str],
) -> list[tf.Operation]:
    """Returns the ops (none or one) that warn or fail after `after` skipped steps in a row at the smallest scale.

    Args:
        answer: one of ANSWERS; "warn" repeats every `after` steps, "raise" is InvalidArgumentError.
        after: int.
        stuck_steps: int64 scalar tensor, steps skipped in a row at the smallest scale.
        scale: float32 scalar tensor.
        floor: the smallest scale.
        sizes: float32 tensor, one number a gradient that is not finite where the gradient is not; or None.
        names: list of str, the gradients' variables.
    """
    if answer == "ignore":
        return []
    due = tf.logical_and(stuck_steps > 0, tf.equal(stuck_steps % after, 0))

    def speak() -> Any:
        worst = tf.constant("unknown, the flag comes from a detector or from several replicas")
        if sizes is not None:
            worst = tf.boolean_mask(tf.constant(names), tf.logical_not(tf.is_finite(sizes)))
        said = ["npu_shim: steps skipped in a row at the smallest loss scale:", stuck_steps, "loss scale:", scale]
        said += ["gradients that are not finite:", worst, hint(floor)]
        if answer == "raise":
            return tf.group(tf.Assert(tf.constant(False), said, summarize=20))
        return tf.print(*said, output_stream=sys.stderr, summarize=20)

    return [tf.cond(due, speak, tf.no_op, name="report_stuck")]


def log_cost_of_start(manager: Any) -> None:
    """Warns how many steps a start beyond float16's range will cost."""
    state = getattr(manager, "initial_state", None)
    if state is None or state.loss_scale < FLOAT16_OVERFLOW:
        return
    lost = skipped_until(state)
    tf.logging.warning(
        "npu_shim: the loss scale starts at %g; a float16 gradient of 1 overflows until it is below %d, which takes %s "
        "skipped steps",
        state.loss_scale,
        FLOAT16_OVERFLOW,
        "endless" if lost is None else lost,
    )
