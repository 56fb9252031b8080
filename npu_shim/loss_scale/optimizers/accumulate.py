"""Gradient accumulation in which an overflow of any of the gathered steps skips the whole window."""

from __future__ import annotations

import numbers
from typing import Any, Callable, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import control_flow_v1, outer_graph, publish_flag, state_here
from npu_shim.loss_scale.optimizers.gradients import times
from npu_shim.loss_scale.optimizers.inner import (
    SlotsOfInner,
    keep_hyperparameters,
    make_hyperparameters,
    names_as_outside,
    pairs_with_gradients,
    run_if,
    train_ops_replaced,
)
from npu_shim.loss_scale.optimizers.sums import hidden_variable, sum_for
from npu_shim.loss_scale.steps import overflow
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype
from npu_shim.rewriter.errors import ConfigError


class AccumulatingOptimizer(SlotsOfInner, tf.train.Optimizer):
    """Gathers the gradients of `every` steps and lets the wrapped optimizer apply their mean, or their sum.

    An infinity or NaN stays in the sum, so the flag is sticky within the window. Afterwards the sums are assigned zero,
    never multiplied by it (0 * NaN is NaN). The loss scale changes at most once per window.

    Gradients narrower than float32 are summed in float32. Of sparse gradients the wrapped optimizer gets the rows that
    the window touched, as IndexedSlices, so that it leaves the other rows alone. A loss-scale optimizer that protects
    UPDATE_OPS undoes those of each step that overflows.

    Args:
        opt: LossScaleOptimizer, or any optimizer.
        every: int >= 1, steps a window.
        average: bool; False applies the sum, which is what Horovod's backward_passes_per_step means by default.
        counts_all: bool; global_step then counts the steps that only gather too, as Horovod's does.

    Raises:
        ConfigError: every is no such number.
    """

    def __init__(self, opt: Any, every: int, average: bool = True, counts_all: bool = False) -> None:
        super().__init__(use_locking=False, name="AccumulatingOptimizer")
        if isinstance(every, bool) or not isinstance(every, numbers.Integral) or every < 1:
            raise ConfigError("every=%r is not accepted, expected a whole number of at least 1" % (every,))
        self._opt, self._every, self._average, self._counts_all = opt, int(every), average, counts_all

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> tf.Operation:
        """Returns the op of one step; only every `every`-th step applies, and increments global_step (see counts_all).

        Raises:
            ConfigError: there is no graph around it.
            ValueError: no variable has a gradient.
        """
        if outer_graph() is None:
            raise ConfigError("AccumulatingOptimizer works in graphs: build the optimizer and the model in a tf.Graph")
        given = self._with_hidden_overflows(pairs_with_gradients(grads_and_vars))
        with tf.init_scope():
            count = hidden_variable("accumulated_steps", tf.zeros([], tf.int32))
            sums = [sum_for(gradient, variable) for gradient, variable in given]
        self._keep_variables([count, *(variable for total in sums for variable in total.variables)])
        with tf.control_dependencies([total.add(gradient) for total, (gradient, _) in zip(sums, given)]):
            now = count.read_value() + 1
        full = now >= self._every

        # nothing is applied while gradients are gathered; the flag then tells whether the whole window is skipped
        seen = overflow.all_finite([gradient for gradient, _ in given])
        undo_updates = getattr(self._opt, "undo_updates", None)
        undone = [] if undo_updates is None else undo_updates(given)
        make_hyperparameters(self._opt)
        with train_ops_replaced() as train_ops, names_as_outside() as inside, keep_hyperparameters(self._opt):

            def apply():
                with inside():
                    gathered = [total.over(self._every if self._average else 1) for total in sums]
                    applied = self._opt.apply_gradients(list(zip(gathered, [v for _, v in given])), global_step)
                    finite = getattr(self._opt, "grads_finite", None)
                    with tf.control_dependencies([applied]):
                        done = [count.assign(0), *(op for total in sums for op in total.clear())]
                    with tf.control_dependencies(done):
                        return tf.identity(tf.constant(True) if finite is None else finite)

            def gather():
                counted = [global_step] if self._counts_all and global_step is not None else []
                with tf.control_dependencies([count.assign(now), *(tf.assign_add(step, 1) for step in counted)]):
                    return tf.identity(seen)

            with control_flow_v1():
                finite = tf.cond(full, apply, gather, name="apply_if_full")
            train_ops.append(tf.group(finite, *undone, name=name or self.get_name()))
        applied = tf.logical_and(finite, full)
        state_here(self)["applied"] = applied
        if hasattr(self._opt, "grads_finite"):
            publish_flag(self._opt, finite, applied)  # its own lives in the branch, where nobody can fetch it
        return train_ops[0]

    def _with_hidden_overflows(self, given):
        """Returns the pairs; the first gradient is NaN where clipping has hidden an overflow from them."""
        look = getattr(self._opt, "hidden", None)
        hidden, shared = ([], False) if look is None else look(given)
        if not hidden:
            return given
        finite = overflow.all_finite([gradient for gradient, _ in hidden])
        finite = overflow.agreed(finite) if shared else finite
        with keep_dtype():
            factor = tf.where_v2(finite, 1.0, float("nan"))
            return [(times(given[0][0], factor), given[0][1]), *given[1:]]

    def when_finite(self, build: Callable[[], Any]) -> tf.Operation:
        """Returns an op that runs what `build()` returns in applied steps only, as LossScaleOptimizer's does.

        A step that only gathers does not run it, nor does the last step of a window that is skipped.
        """
        return run_if(state_here(self).get("applied"), build)
