"""The optimizer that scales the loss, unscales the gradients in float32 and skips the steps that overflow."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.graph_ops import control_flow_v1, outer_graph, publish_flag, state_here
from npu_shim.loss_scale.optimizers import update_ops
from npu_shim.loss_scale.optimizers.gradients import as_factor, scale_loss, unscale, weighted, widened
from npu_shim.loss_scale.optimizers.inner import (
    SlotsOfInner,
    keep_hyperparameters,
    learning_rate,
    make_hyperparameters,
    names_as_outside,
    pairs_with_gradients,
    run_if,
    train_ops_replaced,
)
from npu_shim.loss_scale.steps import overflow, raw, skip_messages, stuck
from npu_shim.loss_scale.steps.counters import ATTEMPTED, SKIPPED, StepCounters
from npu_shim.options.collected import LOSS_SCALE, SKIPPED_STEPS
from npu_shim.rewriter.errors import ConfigError, nearest


class LossScaleOptimizer(SlotsOfInner, tf.train.Optimizer):
    """Wraps an optimizer with loss scaling and keeps the contract of tf.train.Optimizer, in graphs and eagerly.

    Variables of the wrapped optimizer keep the names they have without the wrapper, so checkpoints of the plain and of
    the wrapped optimizer fit each other.

    Args:
        opt: tf.train.Optimizer, or anything with its compute_gradients and apply_gradients.
        loss_scale_manager: LossScaleManager.
        detector: function from a list of gradients (Tensor or IndexedSlices) to a bool scalar tensor that says whether
            the step may be applied; None looks at the values.
        reducer: function from this worker's bool scalar tensor to the one all workers agree on; None stays local.
        protect_update_ops: bool; True rolls back the assignments of UPDATE_OPS in a skipped step (see `update_ops`).
        on_stuck: "warn", "raise" or "ignore": what happens when `stuck_after` steps in a row were skipped at the
            smallest scale.
        stuck_after: int >= 1.

    Raises:
        ConfigError: on_stuck or stuck_after is not one of these.
    """

    _looks_behind = False  # at gradients from which the script computes those that it applies

    def __init__(
        self,
        opt: Any,
        loss_scale_manager: Any,
        detector: Callable[[list[Any]], tf.Tensor] | None = None,
        reducer: Callable[[tf.Tensor], tf.Tensor] | None = None,
        protect_update_ops: bool = False,
        on_stuck: str = "warn",
        stuck_after: int = 100,
    ) -> None:
        super().__init__(use_locking=getattr(opt, "_use_locking", False), name=type(self).__name__)
        if on_stuck not in stuck.ANSWERS:
            raise ConfigError(
                "on_stuck='%s' is unknown%s, expected one of %s"
                % (on_stuck, nearest(on_stuck, stuck.ANSWERS), ", ".join(stuck.ANSWERS))
            )
        if stuck_after < 1:
            raise ConfigError("stuck_after=%r is not accepted, expected at least 1" % (stuck_after,))
        self._opt = opt
        # MindSpore's managers move on the host and know what moves in the graph
        in_graph = getattr(loss_scale_manager, "graph_manager", None)
        self._loss_scale_manager = in_graph() if in_graph else loss_scale_manager
        self._detector = detector
        self._reducer = reducer
        self._protect_update_ops = protect_update_ops
        self._on_stuck, self._stuck_after = on_stuck, stuck_after
        stuck.log_cost_of_start(self._loss_scale_manager)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: Any = tf.train.Optimizer.GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Returns the gradients of the unscaled loss, computed through the scaled one.

        Args:
            loss: float tensor of any float dtype and shape, or a function that returns it.
            var_list: as in tf.train.Optimizer.
            gate_gradients: as in tf.train.Optimizer.
            aggregation_method: as in tf.train.Optimizer.
            colocate_gradients_with_ops: as in tf.train.Optimizer.
            grad_loss: as in tf.train.Optimizer; for a list of losses, a list of Tensor or None.

        Returns:
            list of (gradient, variable); a gradient has its variable's dtype, is None where there is none and
            IndexedSlices where it is sparse.
        """
        scale = as_factor(self._loss_scale_manager.get_loss_scale())
        starts = grad_loss if isinstance(grad_loss, (list, tuple)) else None

        def scaled_loss():
            unscaled = loss() if callable(loss) else loss
            return scale_loss(unscaled if starts is None else weighted(unscaled, starts), scale)

        pairs = self._opt.compute_gradients(
            scaled_loss if callable(loss) else scaled_loss(),
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=None if starts is not None else widened(grad_loss),
        )
        unscaled = unscale(pairs, scale)
        if outer_graph() is None:
            return unscaled
        state_here(self).setdefault("made", []).extend(pair for pair in unscaled if pair[0] is not None)
        return unscaled

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> tf.Operation:
        """Returns the op that applies the gradients when all are finite, and moves the loss scale in any case.

        Args:
            grads_and_vars: iterable of (gradient or None, variable).
            global_step: variable or None; incremented by applied steps only.
            name: name of the returned op.

        Raises:
            ValueError: no variable has a gradient.
        """
        pairs = tuple(grads_and_vars)
        given = pairs_with_gradients(pairs)
        if global_step is not None:
            skip_messages.one_line_a_run()
        looked_at, finite, sizes = self._check(given)
        if not tf.distribute.has_strategy():
            apply = lambda: self._opt.apply_gradients(pairs, global_step, name)  # noqa: E731
            return self._gated(apply, looked_at, finite, sizes, name)
        if tf.distribute.in_cross_replica_context():
            raise RuntimeError("npu_shim: apply_gradients is called in each replica, not across them")
        overflowed = tf.cast(tf.logical_not(finite), tf.float32)
        return tf.distribute.get_replica_context().merge_call(
            self._apply_across_replicas, args=(given, overflowed, global_step, name)
        )

    def _apply_across_replicas(self, strategy, pairs, overflowed, global_step, name):
        overflows = strategy.reduce(tf.distribute.ReduceOp.SUM, overflowed, axis=None)
        apply = lambda: self._opt._distributed_apply(strategy, pairs, global_step, name)  # noqa: E731
        return self._gated(apply, pairs, tf.equal(overflows, 0.0), None, name)

    def hidden(self, grads_and_vars: Sequence[tuple[Any, Any]]) -> tuple[list[tuple[Any, Any]], bool]:
        """Returns (gradients behind those of a step whose overflow skips it too, whether all workers are to agree).

        Args:
            grads_and_vars: list of (gradient, variable) of the step.
        """
        if not self._looks_behind or outer_graph() is None:
            return [], False
        return raw.behind(grads_and_vars, state_here(self).get("made", ()))

    def undo_updates(self, grads_and_vars: Sequence[tuple[Any, Any]]) -> list[tf.Operation]:
        """Returns the ops (none or one) that undo UPDATE_OPS of a step whose gradients overflow, if this protects them.

        For a wrapper that does not apply each of its steps, before it calls `apply_gradients`, which then leaves
        UPDATE_OPS alone: a step of its own may be finite where the mean that it applies is not.

        Args:
            grads_and_vars: list of (gradient, variable) of the step.
        """
        if not self._protect_update_ops:
            return []
        _, finite, _ = self._check(grads_and_vars)
        taken = self._snapshots(finite, grads_and_vars)
        state_here(self)["undone"] = True
        with control_flow_v1():
            return [tf.cond(finite, tf.no_op, lambda: update_ops.rollback(taken), name="undo_updates")]

    def _snapshots(self, finite, pairs):
        if not self._protect_update_ops or outer_graph() is None:  # without a graph there are no UPDATE_OPS
            return []
        if state_here(self).pop("undone", False):
            return []
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        return update_ops.snapshots(updates, finite, [variable for _, variable in pairs])

    def _check(self, given):
        """Returns (pairs that this rank looks at, may the step be applied: bool scalar, their magnitudes or None)."""
        own = getattr(self._opt, "own_pairs", lambda _: None)(given)  # of an optimizer whose ranks share the update
        pairs, reducer = (given, self._reducer) if own is None else (own, self._reducer or overflow.agreed)
        check = getattr(self._loss_scale_manager, "get_enable_overflow_check", None)
        if check is not None and not check():
            return pairs, tf.constant(True), None
        if self._detector is not None:
            finite, sizes = self._detector([gradient for gradient, _ in pairs]), None
        else:
            hidden, shared = self.hidden(pairs)
            pairs, reducer = [*pairs, *hidden], (overflow.agreed if shared else reducer)
            gradients = [gradient for gradient, _ in pairs]
            sizes = overflow.magnitudes(gradients)
            finite = overflow.all_finite(gradients, sizes)
        return pairs, (finite if reducer is None else reducer(finite)), sizes

    def _gated(self, apply, pairs, finite, sizes, name):
        make_hyperparameters(self._opt)
        finite = _named_as_the_vendors(finite)
        taken = self._snapshots(finite, pairs)
        same_rate = keep_hyperparameters(self._opt)
        with control_flow_v1(), train_ops_replaced() as train_ops, names_as_outside() as inside, same_rate:

            def applied():
                with inside():
                    return tf.group(apply())

            def skipped():
                return update_ops.rollback(taken) if taken else tf.no_op()

            ops = [tf.cond(finite, applied, skipped, name="apply_if_finite")]
            counted, at_floor = self._count(finite, sizes, [variable.name for _, variable in pairs])
            ops += counted
            with tf.control_dependencies([at_floor]):  # this step counts by its own scale, not by the next one's
                ops.append(self._loss_scale_manager.update_loss_scale(finite))
            train_ops.append(tf.group(*ops, name=name or self.get_name()))
        self._keep_variables(getattr(self._loss_scale_manager, "variables", dict)().values())
        self._publish(finite)
        return train_ops[0]

    def _count(self, finite, sizes, names):
        counters = self._step_counters()
        scale = tf.cast(self._loss_scale_manager.get_loss_scale(), tf.float32)
        floor = getattr(self._loss_scale_manager, "floor", 1.0)
        at_floor = scale <= tf.constant(floor, tf.float32)
        update, stuck_steps = counters.count(finite, at_floor)
        report = stuck.report(self._on_stuck, self._stuck_after, stuck_steps, scale, floor, sizes, names)
        return [update, *report], at_floor

    def _publish(self, finite):
        publish_flag(self, finite)
        if outer_graph() is None:
            return
        with tf.init_scope():  # a step that is built in a branch has these outside of it
            tf.add_to_collection(LOSS_SCALE, tf.identity(self._loss_scale_manager.get_loss_scale()))
            tf.add_to_collection(SKIPPED_STEPS, self.skipped_steps)

    def _step_counters(self):
        state = state_here(self)
        if "counters" not in state:
            state["counters"] = StepCounters()
        return state["counters"]

    @property
    def attempted_steps(self) -> tf.Tensor:
        """Number of steps that this run attempted, applied or skipped: int64 scalar tensor."""
        return self._step_counters()[ATTEMPTED]

    @property
    def skipped_steps(self) -> tf.Tensor:
        """Number of steps that this run skipped: int64 scalar tensor."""
        return self._step_counters()[SKIPPED]

    @property
    def grads_finite(self) -> tf.Tensor | None:
        """Whether the graph's last `apply_gradients` applies in this run: bool scalar tensor, None before that."""
        return state_here(self).get("finite")

    @property
    def learning_rate(self) -> tf.Tensor | None:
        """The wrapped optimizer's learning rate: scalar tensor that can always be fetched, None when it has none."""
        return learning_rate(self._opt)

    def when_finite(self, build: Callable[[], Any]) -> tf.Operation:
        """Returns an op that runs what `build()` returns (an op) in applied steps only, for example an EMA's apply.

        Raises:
            ConfigError: apply_gradients has not been called yet.
        """
        return run_if(state_here(self).get("applied"), build)


def _named_as_the_vendors(finite):
    """Returns the flag under the names by which scripts fetch it: the adapter's of 2021-02, and its later one."""
    return tf.identity(tf.identity(finite, name="All"), name="overflow_status_reduce_all")


class NPULossScaleOptimizer(LossScaleOptimizer):
    """npu_bridge's loss-scale optimizer: a step is skipped as well if clipping hides the overflow, as on an NPU.

    In eager code, where nothing tells what a gradient was computed from, only what is applied is looked at.

    Args:
        opt: optimizer.
        loss_scale_manager: LossScaleManager.
        is_distributed: bool; True lets all workers skip a step when one of them overflows.
        safety: keyword arguments of LossScaleOptimizer.
    """

    _looks_behind = True

    def __init__(self, opt: Any, loss_scale_manager: Any, is_distributed: bool = False, **safety: Any) -> None:
        if is_distributed:
            safety.setdefault("reducer", overflow.agreed)
        super().__init__(opt, loss_scale_manager, **safety)
