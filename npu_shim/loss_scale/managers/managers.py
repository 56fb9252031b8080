"""Loss-scale managers under the names of tf.contrib.mixed_precision and npu_bridge.

A manager belongs to no graph: its state is made in the graph that is current at its construction, and in every other
graph that uses it. So a manager made outside `model_fn` works (the originals fail). Eager code has one state for all
that runs eagerly, made at its first use.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.managers import schedule
from npu_shim.loss_scale.managers.graph_ops import next_tensors, op_of, outer_graph, states_of
from npu_shim.rewriter.errors import ConfigError

INT32_KEYS = ("good_steps", "bad_steps")


class LossScaleManager(abc.ABC):
    """Gives a loss-scale optimizer the scale and receives the outcome of each step; users derive from it."""

    @abc.abstractmethod
    def get_loss_scale(self) -> tf.Tensor:
        """Returns the scale of the coming step: float32 scalar tensor."""

    @abc.abstractmethod
    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns the op that moves the scale.

        Args:
            finite_grads: bool scalar tensor, whether all gradients of the step are finite.
        """


class FixedLossScaleManager(LossScaleManager):
    """A scale that never moves.

    Args:
        loss_scale: number >= 1.
        enable_overflow_check: False applies every step, whatever its gradients are (npu_bridge's argument).
        drop_overflow_update: the same under MindSpore's name.

    Raises:
        ConfigError: loss_scale is below 1 or no number.
    """

    LEAST = 1.0  # as the vendor's and tf.contrib's have it

    def __init__(
        self, loss_scale: float = 128.0, enable_overflow_check: bool = True, drop_overflow_update: bool | None = True
    ) -> None:
        if not isinstance(loss_scale, (int, float, np.number)) or not loss_scale >= self.LEAST:
            raise ConfigError("loss_scale=%r is not accepted: loss scale must be at least 1." % (loss_scale,))
        self._value = np.float32(loss_scale)
        self._enable_overflow_check = bool(enable_overflow_check and drop_overflow_update)
        if not tf.executing_eagerly():
            self.get_loss_scale()

    def get_loss_scale(self) -> tf.Tensor:
        """Returns the scale: float32 scalar constant, named `loss_scale` in each graph."""
        states = states_of(None if tf.executing_eagerly() else tf.get_default_graph())
        if self not in states:
            with tf.init_scope():
                states[self] = tf.constant(self._value, name="loss_scale")
        return states[self]

    @property
    def floor(self) -> float:
        """The smallest scale: float."""
        return float(self._value)

    def get_enable_overflow_check(self) -> bool:
        """Returns whether a step with a gradient that is not finite is skipped."""
        return self._enable_overflow_check

    def get_drop_overflow_update(self) -> bool:
        """Returns the same under MindSpore's name."""
        return self._enable_overflow_check

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns an op that does nothing."""
        del finite_grads
        return tf.no_op()


class ScheduledLossScaleManager(LossScaleManager):
    """Moves the scale by a Policy of `schedule`.

    The state are the variables `loss_scale` (rule.dtype), `good_steps` and `bad_steps` (int32), not trainable, in
    GLOBAL_VARIABLES and so in checkpoints, made outside control dependencies; the name scope prefixes them.

    Args:
        rule: schedule.Policy or the name of one.
        init_loss_scale: number, the first scale.
        use_resource: whether they are resource variables; None: as the script's are.
        collections: list of str, the collections that they are in; None is GLOBAL_VARIABLES.
    """

    def __init__(
        self,
        rule: schedule.Policy | str,
        init_loss_scale: float,
        use_resource: bool | None = None,
        collections: list[str] | None = None,
    ) -> None:
        self._start = schedule.initial_state(rule, init_loss_scale)
        self._use_resource, self._collections = use_resource, collections
        if not tf.executing_eagerly():
            self._variables()

    @property
    def floor(self) -> float:
        """The smallest scale: float."""
        return self._start.policy.min_scale

    @property
    def initial_state(self) -> Any:
        """The schedule.LossScaleState of a new run."""
        return self._start

    def variables(self) -> dict[str, Any]:
        """Returns the state variables in the current graph: dict of name to variable."""
        return dict(self._variables())

    def get_loss_scale(self) -> tf.Tensor:
        """Returns the scale of the coming step: scalar variable."""
        return self._variables()["loss_scale"]

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Returns the op that moves the scale and the counters by one step."""
        variables = self._variables()
        inside = outer_graph() is not tf.get_default_graph()
        if inside and not hasattr(type(variables["loss_scale"]), "handle"):
            raise ConfigError(
                "the loss scale is a reference variable and cannot move inside a tf.cond or tf.function of control "
                "flow v2: call tf.disable_control_flow_v2(), or give the manager use_resource=True"
            )
        after = next_tensors(self._start.policy, self._now(), finite_grads)
        exhausted = after.pop("exhausted", None)
        with tf.control_dependencies([after[key] for key in sorted(after)]):
            updates = [op_of(variables[key].assign(after[key])) for key in sorted(after)]
        if exhausted is None:
            return tf.group(*updates, name="update_loss_scale")
        with tf.control_dependencies(updates):
            limit = self._start.policy.bad_limit
            return tf.Assert(tf.logical_not(exhausted), ["npu_shim: more than %d steps in a row overflowed" % limit])

    def _now(self):
        """Returns copies of the state: a reference variable shows a reader the value of its moment."""
        return {key: tf.identity(variable) for key, variable in self._variables().items()}

    def _variables(self):
        graph = outer_graph()
        states = states_of(graph)
        if self not in states:
            with tf.init_scope():
                states[self] = self._new_variables()
        return states[self]

    def _new_variables(self):
        start, variables = self._start, {}
        variables["loss_scale"] = self._variable("loss_scale", start.loss_scale)
        for key in INT32_KEYS:
            variables[key] = self._variable(key, np.int32(0))
        if start.policy.hysteresis > 1:
            variables["hysteresis_left"] = self._variable("hysteresis_left", np.int32(start.patience))
        return variables

    def _variable(self, name, value):
        return tf.Variable(
            value,
            name=name,
            dtype=value.dtype,
            trainable=False,
            collections=self._collections,
            use_resource=self._use_resource,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


class ExponentialUpdateLossScaleManager(ScheduledLossScaleManager):
    """Grows the scale after finite steps in a row and shrinks it after overflows (npu_bridge's rule).

    Args:
        init_loss_scale: number, the first scale; every number is accepted, as in the original.
        incr_every_n_steps: int, finite steps in a row before the scale grows.
        decr_every_n_nan_or_inf: int, overflows before it shrinks; they add up until the scale moves.
        incr_ratio: number, the growth.
        decr_ratio: number, the decrease; the scale stays at least 1.
        use_resource: as in ScheduledLossScaleManager.
    """

    POLICY = "ascend"

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2,
        decr_ratio: float = 0.8,
        use_resource: bool | None = None,
    ) -> None:
        rule = dataclasses.replace(
            schedule.POLICIES[self.POLICY],
            growth_interval=incr_every_n_steps,
            growth_factor=incr_ratio,
            backoff_interval=decr_every_n_nan_or_inf,
            backoff_factor=decr_ratio,
        )
        super().__init__(rule, init_loss_scale, use_resource)
