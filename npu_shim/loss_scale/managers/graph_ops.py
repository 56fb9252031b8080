"""The loss-scale schedule as TensorFlow ops, the mirror of `schedule.next_state`, and the state that a graph keeps."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers.schedule import ASCEND_LIMIT, Policy
from npu_shim.options.collected import GRADS_FINITE
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype

# the states of managers and optimizers that no graph keeps
_EAGERLY: Any = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def control_flow_v1() -> Iterator[None]:
    """Scope in which tf.cond makes Switch and Merge, whose branches may write reference variables; an If cannot.

    In the body of a tf.function, tf.cond makes an If all the same.
    """
    # in a function, the answer is True whatever the switch says
    if tf.get_default_graph().building_function or not tf.control_flow_v2_enabled():
        yield
        return
    tf.disable_control_flow_v2()
    try:
        yield
    finally:
        tf.enable_control_flow_v2()


def next_tensors(rule: Policy, now: Mapping[str, tf.Tensor], finite: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the state after a step, as tensors.

    Args:
        rule: schedule.Policy.
        now: dict of scalar tensors: loss_scale (rule.dtype), good_steps and bad_steps (any integer dtype), and as far
            as wanted hysteresis_left, step and last_overflow (of the dtype of good_steps).
        finite: bool scalar tensor.

    Returns:
        dict with the keys of `now`, plus "exhausted" (bool scalar) when the policy has a bad_limit.
    """
    with keep_dtype(), tf.name_scope("next_loss_scale"):
        overflow = tf.logical_not(finite)
        grow = tf.logical_and(finite, now["good_steps"] + 1 >= max(rule.growth_interval, 1))
        counted, after = overflow, {}
        if "hysteresis_left" in now:
            left = now["hysteresis_left"]
            counted = tf.logical_and(overflow, left <= 0)
            spent = tf.where_v2(tf.logical_and(overflow, left > 0), left - 1, left)
            after["hysteresis_left"] = tf.where_v2(grow, tf.ones_like(left) * (rule.hysteresis - 1), spent)
        shrink, after["bad_steps"] = _bad_steps(rule, now["bad_steps"], finite, grow, counted)
        zero = tf.zeros_like(now["good_steps"])
        after["good_steps"] = tf.where_v2(tf.logical_or(grow, overflow), zero, now["good_steps"] + 1)
        scale = now["loss_scale"]
        after["loss_scale"] = tf.where_v2(grow, _grow(rule, scale), tf.where_v2(shrink, _shrink(rule, scale), scale))
        if rule.bad_limit is not None:
            after["exhausted"] = after["bad_steps"] > rule.bad_limit
        if "step" in now:
            after.update(_steps(now, overflow, after.get("exhausted")))
        return after


def _bad_steps(rule, bad_steps, finite, grow, counted):
    zero, more = tf.zeros_like(bad_steps), tf.where_v2(counted, bad_steps + 1, bad_steps)
    if rule.bad_reset == "good step":
        return counted, tf.where_v2(finite, zero, more)
    shrink = tf.logical_and(counted, bad_steps + 1 >= rule.backoff_interval)
    return shrink, tf.where_v2(tf.logical_or(grow, shrink), zero, more)


def _steps(now, overflow, exhausted):
    step = now["step"] + 1
    last = tf.where_v2(overflow, step, now["last_overflow"])
    # a run that has ended does not count its last step, see schedule.ScaleExhausted
    return {"step": step if exhausted is None else tf.where_v2(exhausted, now["step"], step), "last_overflow": last}


def _grow(rule, scale):
    grown = scale * tf.constant(rule.number(rule.growth_factor))
    if rule.growth_guard == "finite":
        grown = tf.where_v2(tf.is_finite(grown), grown, scale)
    if rule.growth_guard == "ascend":
        grown = tf.where_v2(scale < tf.constant(rule.number(ASCEND_LIMIT / rule.growth_factor)), grown, scale)
    if rule.max_scale is None:
        return grown
    # a product that the guard refused stays as it is
    return tf.where_v2(tf.equal(grown, scale), scale, tf.minimum(grown, tf.constant(rule.number(rule.max_scale))))


def _shrink(rule, scale):
    if rule.backoff == "divide":
        # Grappler folds a division by a constant into a product with its reciprocal, which rounds differently
        shrunk = scale / tf.placeholder_with_default(tf.constant(rule.shrink), [])
    else:
        shrunk = scale * tf.constant(rule.shrink)
    return tf.maximum(shrunk, tf.constant(rule.number(rule.min_scale)))


def outer_graph() -> tf.Graph | None:
    """Returns the graph around all functions and conditionals; None in eager code, and in functions that it calls."""
    with tf.init_scope():
        return None if tf.executing_eagerly() else tf.get_default_graph()


def states_of(graph: tf.Graph | None) -> Any:
    """Returns the dict of manager or optimizer to its state in a graph, or in eager code (None).

    An entry lives as long as the graph and its key.
    """
    if graph is None:
        return _EAGERLY
    states = getattr(graph, "_npu_shim_loss_scale", None)
    if states is None:
        states = graph._npu_shim_loss_scale = weakref.WeakKeyDictionary()
    return states


def op_of(update: Any) -> tf.Operation | None:
    """Returns the op of an assignment; None where it has run already, in eager code."""
    return None if tf.executing_eagerly() else update.op


def publish_flag(optimizer: Any, finite: tf.Tensor, applied: tf.Tensor | None = None) -> None:
    """Records the flag of an optimizer's last step in this graph, and publishes it to hooks if it can be fetched.

    Eager code keeps the flag of its last step, too; in a function that it calls nobody could read it.

    Args:
        optimizer: the one whose step it is.
        finite: bool scalar tensor, whether the step's gradients are finite.
        applied: bool scalar tensor, whether the step is applied; None where each finite step is.
    """
    if outer_graph() is not None or tf.executing_eagerly():
        state_here(optimizer).update(finite=finite, applied=finite if applied is None else applied)
    if not in_branch():
        tf.add_to_collection(GRADS_FINITE, finite)


def state_here(optimizer: Any) -> dict[str, Any]:
    """Returns an optimizer's state in this graph, a dict.

    The graph holds it, not the optimizer: an optimizer that outlives its graphs keeps none of them alive.
    """
    return states_of(outer_graph()).setdefault(optimizer, {})


def in_branch() -> bool:
    """Whether new ops are inside a conditional, a loop or a function, whose tensors cannot be fetched from outside."""
    graph = tf.get_default_graph()
    return graph is not outer_graph() or graph._get_control_flow_context() is not None
