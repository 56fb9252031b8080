"""An optimizer's update that runs in steps only whose gradients are finite, and moves the scale in every step."""

from __future__ import annotations

import logging
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic import own, state
from npu_shim.loss_scale.automatic.calls import SCOPE, Registry, registry_of
from npu_shim.loss_scale.automatic.origin import Origin, can_read, origin_of
from npu_shim.loss_scale.managers.graph_ops import control_flow_v1, in_branch, outer_graph
from npu_shim.loss_scale.optimizers.gradients import as_factor
from npu_shim.loss_scale.optimizers.inner import (
    as_tensor,
    keep_hyperparameters,
    make_hyperparameters,
    name_scope,
    names_as_outside,
    train_ops_replaced,
)
from npu_shim.loss_scale.steps import overflow, skip_messages, stuck
from npu_shim.options.collected import GRADS_FINITE
from npu_shim.options.reports import ledger

LOG = logging.getLogger("npu_shim")
STUCK_AFTER = 100  # steps, as LossScaleOptimizer's
BFLOAT16 = "bfloat16 needs no loss scale (precision_mode=allow_mix_precision_bf16)"


def applied(
    optimizer: Any,
    pairs: Sequence[tuple[Any, Any]],
    scale: Any,
    apply: Callable[[], Any],
    name: str | None,
    global_step: Any,
) -> Any:
    """Returns what an optimizer's apply_gradients returns, or the op that does the same in finite steps.

    Args:
        optimizer: the optimizer.
        pairs: (gradient or None, variable).
        scale: as `forced.checked_scale` returns it, for a new scale.
        apply: function without arguments, the optimizer's own apply_gradients of these pairs.
        name: name of the op; None where the optimizer's class chooses it.
        global_step: as for apply_gradients.
    """
    if outer_graph() is None:
        return apply()
    try:
        with tf.name_scope(SCOPE):
            pairs = [(None if gradient is None else as_tensor(gradient), variable) for gradient, variable in pairs]
    except (TypeError, ValueError):  # the optimizer refuses it in its own words
        return apply()
    scaled = _with_scale(optimizer, pairs, scale)
    if scaled is None:
        return apply()
    if global_step is not None:
        skip_messages.one_line_a_run()
    looked_at, managers = scaled
    return _gated(optimizer, apply, looked_at, managers, name)


def tested(optimizer: Any, pairs: Sequence[tuple[Any, Any]], scale: Any) -> tuple[Any, list[Any]] | None:
    """Returns whether a step's gradients are finite, and the ops that move their scale; None: they get no scale.

    Args:
        optimizer: an optimizer that makes its own updates, and leaves out those of other steps.
        pairs: (gradient or None, variable).
        scale: as for `applied`.
    """
    scaled = _with_scale(optimizer, pairs, scale)
    if scaled is None:
        return None
    looked_at, managers = scaled
    with control_flow_v1(), tf.name_scope(SCOPE):
        finite, sizes = _finite(looked_at)
        names = [variable for _, variable in looked_at[0]]
        ops = [op for manager in managers for op in _moved(manager, finite, sizes, names)]
    tf.add_to_collection(GRADS_FINITE, finite)
    return finite, ops


def _with_scale(optimizer, pairs, scale):
    """Gives gradients a scale; returns (what `_tested` does, managers of their scales), or None if they get none."""
    given = [gradient for gradient, _ in pairs if gradient is not None]
    if not given:
        return None
    origin = origin_of(given)
    registry = registry_of(outer_graph())
    reason = _left_alone(optimizer, origin)
    if reason is not None:
        registry.left.update(origin.calls)
        say(registry, "the optimizer %s %s" % (type(optimizer).__name__, reason))
        return None
    managers = _give_scale(registry, origin, scale)
    return _tested(optimizer, pairs, origin), managers


def say(registry: Registry, text: str) -> None:
    """Logs a line about a graph, once."""
    if text not in registry.said:
        registry.said.add(text)
        LOG.warning("npu_shim: %s", text)
        ledger.note(ledger.UNSCALED, text)


def _left_alone(optimizer, origin):
    """Returns why an optimizer's gradients are not scaled, or None."""
    if tf.distribute.has_strategy():
        return "is applied by a distribution strategy: its loss is not scaled; " + BFLOAT16
    if own.scales_itself(optimizer):
        return "scales the loss by itself: it is left alone"
    if not origin.calls:
        return "is given gradients that tf.gradients has not made: their loss is not scaled; " + BFLOAT16
    factor = own.divided_out(origin.calls, origin.factors)
    if factor is not None:
        return "is given gradients of a loss that the script scales by %s: they are left alone" % str(factor)
    return None


def _give_scale(registry, origin, scale):
    """Gives the calls that have no scale yet the scale of the others, or a new one; returns all managers of theirs."""
    managers = list(dict.fromkeys(registry.scales[call] for call in origin.calls if call in registry.scales))
    if not managers:
        managers = [state.new_manager(scale)]
    with tf.init_scope(), tf.name_scope(SCOPE):
        value = as_factor(managers[0].get_loss_scale())
    for call in origin.calls:
        if call not in registry.scales:
            registry.scales[call] = managers[0]
            call.factor._update_input(0, value)
    return managers


def _tested(optimizer, pairs, origin: Origin):
    """Returns ((gradient, name of its variable) of all that is to be finite, whether workers are to agree on that).

    The script's own gradients come after those that tf.gradients made: clipping may hide an overflow in these, and an
    overflow on another worker, or in an earlier step that was accumulated, shows in those only. What was clipped before
    it was reduced is an overflow to one worker only, so all agree.
    """
    pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    shared = getattr(optimizer, "own_pairs", lambda _: None)(pairs)  # of an optimizer whose ranks share the update
    given = [(getattr(g, "values", g), variable.name) for g, variable in (pairs if shared is None else shared)]
    known = {tensor.name for tensor, _ in given}
    raw = [(tensor, tensor.name) for tensor in origin.tested if tensor.name not in known and can_read(tensor)]
    return [*given, *raw], shared is not None or (origin.is_reduced and bool(raw))


def _gated(optimizer, apply, tested, managers, name):
    outer, inner = name_scope(), []
    with control_flow_v1(), train_ops_replaced() as train_ops:
        with tf.name_scope(name or SCOPE + "update/") as scope:
            make_hyperparameters(optimizer, scope)
        with keep_hyperparameters(optimizer), names_as_outside(outer) as inside, tf.name_scope(SCOPE):

            def in_finite_steps():
                with inside():
                    done = apply()
                    inner.append(getattr(done, "name", "train").partition(name_scope() + "/")[2].partition(":")[0])
                    return tf.group(done)

            finite, sizes = _finite(tested)
            ops = [tf.cond(finite, in_finite_steps, tf.no_op, name="apply_if_finite")]
            for manager in managers:
                ops += _moved(manager, finite, sizes, [variable for _, variable in tested[0]])
        # the op is called as the optimizer calls it outside of a branch
        train_ops.append(tf.group(*ops, name=scope if name else inner[0] or None))
    if not in_branch():
        tf.add_to_collection(GRADS_FINITE, finite)
    return train_ops[0]


def _finite(tested):
    """Returns whether all of what `_tested` names is finite, and the magnitude of each."""
    looked_at, agree = tested
    tensors = [tensor for tensor, _ in looked_at]
    sizes = overflow.magnitudes(tensors)
    finite = overflow.all_finite(tensors, sizes)
    return (overflow.agreed(finite) if agree else finite), sizes


def _moved(manager, finite, sizes, names):
    """Returns the ops that count a step and move its scale."""
    scale = manager.get_loss_scale()
    at_floor = scale <= tf.constant(manager.floor, tf.float32)
    counted, stuck_steps = manager.counters.count(finite, at_floor)
    report = stuck.report("warn", STUCK_AFTER, stuck_steps, scale, manager.floor, sizes, names)
    with tf.control_dependencies([at_floor]):  # this step counts by its own scale, not by the next one's
        return [counted, *report, manager.update_loss_scale(finite)]
