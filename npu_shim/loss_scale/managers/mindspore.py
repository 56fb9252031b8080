"""MindSpore's dynamic loss-scale manager with its arguments, methods and three slightly different schedules.

Source: MindSpore 2.9.0, facts measured by running it.
"""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

from npu_shim.loss_scale.managers import schedule
from npu_shim.rewriter.errors import ConfigError, nearest

# MindSpore's class -> the policy that reproduces it
SCHEDULES = ("mindspore-manager", "mindspore-cell", "mindspore-scaler")


class DynamicLossScaleManager:
    """A scale that grows after `scale_window` clean steps and shrinks at every overflow.

    Used on its own it moves on the host in Python floats, as MindSpore's manager does.

    Args:
        init_loss_scale: number >= 1; the first positional argument.
        scale_factor: number > 0.
        scale_window: int >= 1.

    Raises:
        ConfigError: an argument is outside these ranges; all are named at once.
    """

    def __init__(self, init_loss_scale: float = 2**24, scale_factor: float = 2, scale_window: int = 2000) -> None:
        problems = []
        if not isinstance(init_loss_scale, numbers.Number) or not init_loss_scale >= 1:
            problems.append("init_loss_scale=%r is not accepted, expected a number of at least 1" % (init_loss_scale,))
        if not isinstance(scale_factor, numbers.Number) or not scale_factor > 0:
            problems.append("scale_factor=%r is not accepted, expected a number above 0" % (scale_factor,))
        if isinstance(scale_window, bool) or not isinstance(scale_window, numbers.Integral) or scale_window < 1:
            problems.append("scale_window=%r is not accepted, expected an integer of at least 1" % (scale_window,))
        if problems:
            raise ConfigError(*problems)
        self._arguments = (init_loss_scale, scale_factor, scale_window)
        self.state = schedule.initial_state(self._rule("mindspore-manager"), init_loss_scale)

    def get_loss_scale(self) -> float:
        """Returns the scale: float."""
        return float(self.state.loss_scale)

    def get_drop_overflow_update(self) -> bool:
        """Returns True: a step that overflows is skipped."""
        return True

    def update_loss_scale(self, overflow: bool) -> None:
        """Moves the scale on the host.

        Args:
            overflow: bool.

        Raises:
            ScaleExhausted: the 1001st overflow in a row; the scale is reduced all the same.
        """
        try:
            self.state = schedule.next_state(self.state, not overflow)
        except schedule.ScaleExhausted as ended:
            self.state = ended.state
            raise

    def graph_manager(self, implementation: str = "mindspore-cell") -> Any:
        """Returns the manager that LossScaleOptimizer takes.

        Args:
            implementation: which of MindSpore's three schedules: "mindspore-cell" is what its training uses,
                "mindspore-scaler" its functional API, "mindspore-manager" this class.
        """
        from npu_shim.loss_scale.managers import managers

        if implementation not in SCHEDULES:
            raise ConfigError(
                "implementation '%s' is unknown%s, expected one of %s"
                % (implementation, nearest(implementation, SCHEDULES), ", ".join(SCHEDULES))
            )
        return managers.ScheduledLossScaleManager(self._rule(implementation), self._arguments[0])

    def _rule(self, name: str) -> schedule.Policy:
        _, factor, window = self._arguments
        return dataclasses.replace(
            schedule.POLICIES[name], growth_factor=factor, backoff_factor=factor, growth_interval=window
        )
