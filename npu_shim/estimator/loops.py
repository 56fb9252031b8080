"""IterationPerLoop: repeats a training step a number of times that may change during training.

Source: Ascend adapter of 2023-12 (r1.15), util.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.estimator.iterations import repeat
from npu_shim.options.entrances.argument_checks import check_positive_integer
from npu_shim.rewriter.errors import ConfigError


class IterationPerLoop:
    """Makes the repeated operation while the graph is built, and sets its number of repetitions for each session."""

    def __init__(self) -> None:
        self._operation = None

    def create_iteration_per_loop_var(self, train_op: Any) -> tf.Operation:
        """Returns an Operation that runs `train_op`: once, or as often as is set for the session.

        Raises:
            ConfigError: train_op is not a tf.Operation.
        """
        if not isinstance(train_op, tf.Operation):
            raise ConfigError("IterationPerLoop: train_op must be a tf.Operation, got %s" % type(train_op))
        with train_op.graph.as_default():
            self._operation = tf.group(train_op, name="IterationOp")
        return self._operation

    def load_iteration_per_loop_var(self, sess: Any, iterations_per_loop: int = 1) -> None:
        """Sets how many times a session runs the operation from now on.

        Raises:
            TypeError: iterations_per_loop is not an int.
            ConfigError: it is not above 0, or there is no operation yet.
        """
        check_positive_integer(iterations_per_loop, "iterations_per_loop")
        if self._operation is None:
            raise ConfigError("IterationPerLoop: call create_iteration_per_loop_var first")
        plain = sess._tf_sess() if hasattr(sess, "_tf_sess") else sess
        repeat(plain, self._operation, lambda _: iterations_per_loop)
