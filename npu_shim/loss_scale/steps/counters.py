"""Counts an optimizer's attempted and skipped steps, and how long it has been stuck at the smallest scale.

In a variable of shape [5]: steps attempted, skipped, skipped in a row at the smallest scale; and the numbers, from 1
on, of the first and the last step that was skipped, 0 before.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import op_of
from npu_shim.options.collected import STEP_COUNTS
from npu_shim.options.ops.scopes import without_npu_compile_scope

ATTEMPTED, SKIPPED, STUCK, FIRST, LAST = range(5)


class StepCounters:
    """Counts the steps of this run: one int64 variable of shape [5], in LOCAL_VARIABLES and so in no checkpoint.

    It is zero even in a script that restores a checkpoint and initializes nothing. A script that initializes the local
    variables in the middle of a run, for the metrics of every epoch, does not reset it.

    Args:
        collections: list of str, the collections that it is in.

    Attributes:
        variable: the variable.
    """

    def __init__(self, collections: Sequence[str] = (tf.GraphKeys.LOCAL_VARIABLES,)) -> None:
        with tf.init_scope():
            self.variable = tf.Variable(
                np.zeros(5, np.int64),
                name="loss_scale_steps",
                trainable=False,
                collections=list(collections),
                use_resource=True,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            if tf.executing_eagerly():
                self._now = None
                return
            self.variable._initializer_op = initialize_once(self.variable)
            self._now = self._read()
            tf.add_to_collection(STEP_COUNTS, self._now)

    def __getitem__(self, which):
        """Returns ATTEMPTED, SKIPPED or STUCK as it is before or after the step of the same run: int64 scalar."""
        return (self._read() if self._now is None else self._now)[which]

    def count(self, finite: tf.Tensor, at_floor: tf.Tensor) -> tuple[tf.Operation, tf.Tensor]:
        """Returns (update op, steps skipped in a row at the floor after this step: int64 scalar).

        Args:
            finite: bool scalar tensor, whether the step is applied.
            at_floor: bool scalar tensor, whether the scale cannot shrink any more.
        """
        now = self._read()
        zero, one = tf.constant(0, tf.int64), tf.constant(1, tf.int64)
        number, skipped = now[ATTEMPTED] + one, tf.where_v2(finite, zero, one)
        first = tf.where_v2(tf.logical_or(finite, now[FIRST] > zero), now[FIRST], number)
        last = tf.where_v2(finite, now[LAST], number)
        stuck = tf.where_v2(tf.logical_and(tf.logical_not(finite), at_floor), now[STUCK] + one, zero)
        after = tf.stack([number, now[SKIPPED] + skipped, stuck, first, last])
        with without_npu_compile_scope():  # a cluster that gives a variable its first value is compiled twice
            return op_of(self.variable.assign(after)), stuck

    def _read(self):
        variable = self.variable
        return tf.cond(
            tf.is_variable_initialized(variable),
            lambda: tf.identity(variable),
            lambda: tf.zeros([5], tf.int64),
        )


def initialize_once(variable: Any) -> tf.Operation:
    """Returns an op that initializes a variable unless it already has a value."""
    start = variable.initial_value
    return tf.group(
        tf.cond(tf.is_variable_initialized(variable), tf.no_op, lambda: tf.group(variable.assign(start))),
        name="initialize_once",
    )
