"""Counts the steps of TensorFlow's own dynamic loss scale, which skips without a word: not even when it skips all.

Its scale stops at 1. What is counted stands in no collection of TensorFlow's, as `state` has it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.calls import SCOPE
from npu_shim.loss_scale.managers.graph_ops import op_of, outer_graph
from npu_shim.loss_scale.steps import stuck
from npu_shim.loss_scale.steps.counters import StepCounters

FLOOR = 1.0
STUCK_AFTER = 100  # steps, as LossScaleOptimizer's


def counted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method for tf.train.experimental.DynamicLossScale's `update` that also counts, in graphs."""

    @functools.wraps(original)
    def update(self: Any, grads: Any) -> Any:
        moved, applied = original(self, grads)
        if outer_graph() is None or tf.distribute.has_strategy():
            return moved, applied
        with tf.name_scope(SCOPE):
            scale = tf.identity(self())
            at_floor = scale <= FLOOR
            ops, stuck_steps = StepCounters(collections=[]).count(tf.identity(applied), at_floor)
            report = stuck.report("warn", STUCK_AFTER, stuck_steps, scale, FLOOR, None, [])
        return tf.group(op_of(moved), ops, *report), applied

    return update
