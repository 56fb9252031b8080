"""Gradient accumulation in which an overflow of any of the gathered steps skips the whole window."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import overflow
from npu_shim.loss_scale.graph_ops import control_flow_v1, publish_flag
from npu_shim.loss_scale.inner import (
    SlotsOfInner,
    keep_hyperparameters,
    make_hyperparameters,
    names_as_outside,
    train_ops_replaced,
)
from npu_shim.rewriter.errors import ConfigError


class AccumulatingOptimizer(SlotsOfInner, tf.train.Optimizer):
    """Gathers the gradients of `every` steps and lets the wrapped optimizer apply their mean.

    An infinity or NaN stays in the sum, so the flag is sticky within the window. Afterwards the sums are assigned zero,
    never multiplied by it (0 * NaN is NaN). The loss scale changes at most once per window.

    Args:
        opt: LossScaleOptimizer, or any optimizer.
        every: int >= 1, steps a window.
    """

    def __init__(self, opt: Any, every: int) -> None:
        super().__init__(use_locking=False, name="AccumulatingOptimizer")
        if every < 1:
            raise ConfigError("every=%r is not taken, expected at least 1" % (every,))
        self._opt, self._every = opt, every

    def __getattr__(self, name):
        if name == "_opt":
            raise AttributeError(name)
        return getattr(self._opt, name)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the wrapped optimizer's gradients of this step."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> tf.Operation:
        """Returns the op of one step; only every `every`-th step applies, and increments global_step."""
        given = [(g, v) for g, v in grads_and_vars if g is not None]
        with tf.init_scope():
            count = _local("accumulated_steps", tf.zeros([], tf.int32))
            sums = [_local(v.op.name + "/accumulated", tf.zeros(v.shape, v.dtype.base_dtype)) for _, v in given]
        gathered = [s.assign_add(tf.convert_to_tensor(g), read_value=False) for s, (g, _) in zip(sums, given)]
        with tf.control_dependencies(gathered):
            now = count.read_value() + 1

        # nothing is applied while gradients are gathered; the flag then tells whether the whole window is skipped
        seen = overflow.all_finite([g for g, _ in given])
        make_hyperparameters(self._opt)
        with train_ops_replaced() as train_ops, names_as_outside() as inside, keep_hyperparameters(self._opt):

            def apply():
                with inside():
                    means = [s.read_value() * tf.cast(1.0 / self._every, s.dtype) for s in sums]
                    applied = self._opt.apply_gradients(list(zip(means, [v for _, v in given])), global_step)
                    finite = getattr(self._opt, "grads_finite", None)
                    with tf.control_dependencies([applied]):
                        done = [count.assign(0), *[s.assign(tf.zeros_like(s)) for s in sums]]
                    with tf.control_dependencies(done):
                        return tf.identity(tf.constant(True) if finite is None else finite)

            def gather():
                with tf.control_dependencies([count.assign(now)]):
                    return tf.identity(seen)

            with control_flow_v1():
                finite = tf.cond(now >= self._every, apply, gather, name="apply_if_full")
            train_ops.append(tf.group(finite, name=name or self.get_name()))
        if hasattr(self._opt, "grads_finite"):
            publish_flag(self._opt, finite)  # the optimizer's own lives in the branch, where nobody can fetch it
        return train_ops[0]


def _local(name, value):
    collections = [tf.GraphKeys.GLOBAL_VARIABLES]
    return tf.Variable(value, name=name, trainable=False, collections=collections, use_resource=True)
