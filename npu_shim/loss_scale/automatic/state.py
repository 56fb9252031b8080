"""The scale and its counters: variables that no Saver of the script and no collection of TensorFlow knows."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.calls import SCOPE, registry_of
from npu_shim.loss_scale.managers import schedule
from npu_shim.loss_scale.managers.graph_ops import outer_graph
from npu_shim.loss_scale.managers.managers import FixedLossScaleManager, ScheduledLossScaleManager
from npu_shim.loss_scale.steps import stuck
from npu_shim.loss_scale.steps.counters import SKIPPED, StepCounters, initialize_once
from npu_shim.options.collected import LOSS_SCALE, SKIPPED_STEPS
from npu_shim.options.entrances import forced
from npu_shim.options.reports import ledger

# tf.train.experimental.DynamicLossScale and Keras' LossScaleOptimizer: 2**15, twice after 2000 steps, half at each
# overflow; NVIDIA's TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING wraps optimizers in the first.
# Theirs stop at 1; a gradient that is no float16 there may be one at 1/8
RULE, START = schedule.policy("experimental", min_scale=stuck.LOWEST), 2.0**15
_scales: list[None] = []  # one entry for each scale of this process


def new_manager(scale: Any) -> Any:
    """Returns a new manager, its state made in the outermost graph; `scale` is as `forced.checked_scale` returns it."""
    registry = registry_of(outer_graph())
    with tf.init_scope(), tf.name_scope(SCOPE):
        manager = HiddenLossScaleManager(RULE, START) if scale == forced.AUTO else _AnyFixedScale(scale)
        manager.counters = StepCounters(collections=[])
        tf.add_to_collection(LOSS_SCALE, tf.identity(manager.get_loss_scale()))
        tf.add_to_collection(SKIPPED_STEPS, manager.counters[SKIPPED])
    registry.managers.append(manager)
    _scales.append(None)
    ledger.note(ledger.SCALED)
    return manager


def scales_made() -> int:
    """Returns how many scales this process has made."""
    return len(_scales)


def variables(graph: tf.Graph | None = None) -> list[Any]:
    """Returns the variables of a graph's scales and counters."""
    with (graph or tf.get_default_graph()).as_default():
        managers = registry_of(tf.get_default_graph()).managers
        if not tf.get_default_graph().finalized:
            for manager in managers:
                _start_at_a_read(manager)
        return [v for manager in managers for v in _scale_of(manager)] + [m.counters.variable for m in managers]


def _scale_of(manager):
    return list(manager.variables().values()) if hasattr(manager, "variables") else []


def _start_at_a_read(manager):
    """Lets a Saver, or a session, read a scale's variables before the first step: a read first writes their start.

    A Saver takes no other op than the read that a variable keeps for it. The ops are made here, so a script that does
    not ask for the variables has none of them.
    """
    if hasattr(manager, "starts"):
        return
    # a step that finds the scale written reads the others too, so it is the last
    variables = [manager.counters.variable, *reversed(_scale_of(manager))]
    with tf.init_scope(), tf.name_scope(SCOPE + "start/"):
        manager.starts = []
        for variable in variables:
            with tf.control_dependencies(manager.starts[-1:]):
                manager.starts.append(initialize_once(variable))
        with tf.control_dependencies(manager.starts[-1:]):
            for variable in variables:
                variable._graph_element = variable.value()


class _AnyFixedScale(FixedLossScaleManager):
    """A scale that stays, below 1 too."""

    LEAST = 0.0


class HiddenLossScaleManager(ScheduledLossScaleManager):
    """A scale in no collection, which reads as its start until its first step has written it."""

    def __init__(self, rule: schedule.Policy | str, init_loss_scale: float) -> None:
        super().__init__(rule, init_loss_scale, use_resource=True, collections=[])
        with tf.init_scope():
            self._scale = self._now()["loss_scale"]

    def get_loss_scale(self) -> tf.Tensor:
        """Returns the scale of the coming step: float32 scalar tensor of the outermost graph."""
        return self._scale

    def _now(self):
        variables = self._variables()
        keys = sorted(variables)
        read = lambda: [tf.identity(variables[key]) for key in keys]  # noqa: E731
        start = lambda: [tf.identity(variables[key].initial_value) for key in keys]  # noqa: E731
        written = tf.is_variable_initialized(variables["loss_scale"])
        return dict(zip(keys, tf.cond(written, read, start, name="state")))
