"""The loss-scale schedule: a frozen state, and the state after one step.

Every scheme that public scripts use is one row of parameters of a single rule. The traces of the original
implementations (TensorFlow 1.15.5 contrib and experimental, MindSpore 2.9.0) are reproduced bit by bit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from npu_shim.rewriter.errors import ConfigError, nearest

# the limit that Ascend compares with before it multiplies, in place of a test of the product
ASCEND_LIMIT = 3.4e38
# the first float32 that rounds to infinity in float16
FLOAT16_OVERFLOW = 65520.0


@dataclasses.dataclass(frozen=True)
class Policy:
    """One scheme of dynamic loss scaling.

    Attributes:
        growth_interval: int, finite steps in a row before the scale grows; below 1 acts as 1.
        growth_factor: float, what the scale is multiplied by when it grows.
        growth_guard: "finite" (keep the scale when the product is not finite), "ascend" (grow only below
            3.4e38 / growth_factor) or "none".
        backoff_interval: int, overflowed steps before the scale shrinks; below 1 acts as 1.
        backoff_factor: float; how it is used is said by `backoff`.
        backoff: "multiply" (by float(backoff_factor)), "reciprocal" (multiply by the stored float(1 / backoff_factor))
            or "divide" (correctly rounded division by backoff_factor).
        bad_reset: "scale change" (overflows add up across finite steps until the scale moves) or "good step".
        bad_limit: int or None; one more overflow in a row raises ScaleExhausted.
        min_scale: float, the floor of every decrease; it lifts a smaller start.
        max_scale: float or None, the ceiling of every increase.
        hysteresis: int >= 1; the first hysteresis - 1 overflows since the last growth change nothing but good_steps.
        dtype: "float32" or "float64", the arithmetic.
    """

    growth_interval: int = 2000
    growth_factor: float = 2.0
    growth_guard: str = "finite"
    backoff_interval: int = 1
    backoff_factor: float = 0.5
    backoff: str = "multiply"
    bad_reset: str = "scale change"
    bad_limit: int | None = None
    min_scale: float = 1.0
    max_scale: float | None = None
    hysteresis: int = 1
    dtype: str = "float32"

    @property
    def number(self) -> Any:
        """The numpy scalar type of the arithmetic."""
        return np.dtype(self.dtype).type

    @property
    def shrink(self) -> Any:
        """The numpy scalar that a decrease multiplies by, or divides by when `backoff` is "divide"."""
        if self.backoff != "reciprocal":
            return self.number(self.backoff_factor)
        # the reciprocal is taken in the arithmetic's own dtype, as Grappler's folding and MindSpore's kernel do
        return self.number(1) / self.number(self.backoff_factor)


# Sources: TensorFlow 1.15.5 contrib/mixed_precision and training/experimental (run), npu_bridge A23 (read),
# MindSpore 2.9.0 DynamicLossScaleManager, DynamicLossScaleUpdateCell, amp.DynamicLossScaler (run).
POLICIES = {
    "contrib": Policy(backoff_interval=2, backoff_factor=0.8),
    "ascend": Policy(backoff_interval=2, backoff_factor=0.8, growth_guard="ascend"),
    "experimental": Policy(backoff_factor=2.0, backoff="reciprocal"),
    "mindspore-manager": Policy(
        backoff_factor=2.0,
        backoff="reciprocal",
        growth_guard="none",
        bad_reset="good step",
        bad_limit=1000,
        dtype="float64",
    ),
    "mindspore-cell": Policy(backoff_factor=2.0, backoff="reciprocal", growth_guard="none"),
    "mindspore-scaler": Policy(backoff_factor=2.0, backoff="divide"),
}


@dataclasses.dataclass(frozen=True)
class LossScaleState:
    """The state of a schedule.

    Attributes:
        policy: Policy.
        loss_scale: numpy scalar of policy.dtype.
        good_steps: int, finite steps in a row since the last overflow or growth.
        bad_steps: int, overflowed steps as `policy.bad_reset` counts them.
        step: int, steps seen, finite or not.
        last_overflow: int, the step of the last overflow, 0 before the first.
        patience: int, overflows that hysteresis still forgives.
    """

    policy: Policy
    loss_scale: Any
    good_steps: int = 0
    bad_steps: int = 0
    step: int = 0
    last_overflow: int = 0
    patience: int = 0


class ScaleExhausted(RuntimeError):
    """More overflows in a row than the policy allows.

    Attributes:
        state: LossScaleState with the reduced scale, its step not advanced (as MindSpore leaves its manager).
    """

    def __init__(self, state: LossScaleState) -> None:
        super().__init__(
            "npu_shim: %d steps in a row overflowed, the most allowed is %d; the loss scale is %g"
            % (state.bad_steps, state.policy.bad_limit or 0, state.loss_scale)
        )
        self.state = state


def policy(name: str, **changes: Any) -> Policy:
    """Returns the Policy of that name with some of its parameters changed.

    Raises:
        ConfigError: unknown name or parameter.
    """
    if name not in POLICIES:
        raise ConfigError(
            "loss-scale policy '%s' is unknown%s, expected one of %s"
            % (name, nearest(name, POLICIES), ", ".join(sorted(POLICIES)))
        )
    known = {field.name for field in dataclasses.fields(Policy)}
    wrong = sorted(set(changes) - known)
    if wrong:
        raise ConfigError(*["loss-scale parameter '%s' is unknown%s" % (w, nearest(w, known)) for w in wrong])
    return dataclasses.replace(POLICIES[name], **changes)


def initial_state(chosen: Policy | str, init_loss_scale: float) -> LossScaleState:
    """Returns the state before the first step.

    Args:
        chosen: Policy, or the name of one.
        init_loss_scale: number; anything is taken, as the originals do.
    """
    chosen = policy(chosen) if isinstance(chosen, str) else chosen
    return LossScaleState(chosen, chosen.number(init_loss_scale), patience=chosen.hysteresis - 1)


def next_state(state: LossScaleState, grads_finite: bool) -> LossScaleState:
    """Returns the state after a step.

    Args:
        state: LossScaleState.
        grads_finite: bool, whether every gradient of the step was finite.

    Raises:
        ScaleExhausted: the policy has a bad_limit and this overflow is one too many.
    """
    return _after_finite(state) if grads_finite else _after_overflow(state)


def skipped_until(state: LossScaleState, limit: float = FLOAT16_OVERFLOW) -> int | None:
    """Returns how many steps are lost when every step at a scale of at least `limit` overflows.

    With the default limit this is what a start costs when the largest float16 gradient of the unscaled loss is 1.
    Returns None when the scale never gets below the limit.
    """
    lost = 0
    while state.loss_scale >= limit:
        before = state
        try:
            state = next_state(state, False)
        except ScaleExhausted:
            return None
        lost += 1
        # neither smaller nor a counter that will make it smaller
        stuck = state.bad_steps == before.bad_steps and state.patience == before.patience
        if state.loss_scale >= before.loss_scale and (stuck or state.bad_steps < before.bad_steps):
            return None
    return lost


def _after_finite(state: LossScaleState) -> LossScaleState:
    rule = state.policy
    step = state.step + 1
    # good_steps 2, growth_interval 3: 1024 -> 2048, counters 0
    if state.good_steps + 1 >= rule.growth_interval:
        return dataclasses.replace(
            state, loss_scale=_grow(state), good_steps=0, bad_steps=0, step=step, patience=rule.hysteresis - 1
        )
    bad_steps = 0 if rule.bad_reset == "good step" else state.bad_steps
    return dataclasses.replace(state, good_steps=state.good_steps + 1, bad_steps=bad_steps, step=step)


def _after_overflow(state: LossScaleState) -> LossScaleState:
    rule = state.policy
    step = state.step + 1
    if state.patience > 0:
        return dataclasses.replace(state, good_steps=0, step=step, last_overflow=step, patience=state.patience - 1)
    bad_steps = state.bad_steps + 1
    counts_in_a_row = rule.bad_reset == "good step"
    # bad_steps 1, backoff_interval 2: 1024 -> 512, counters 0
    if bad_steps < rule.backoff_interval and not counts_in_a_row:
        return dataclasses.replace(state, good_steps=0, bad_steps=bad_steps, step=step, last_overflow=step)
    state = dataclasses.replace(
        state,
        loss_scale=_shrink(state),
        good_steps=0,
        bad_steps=bad_steps if counts_in_a_row else 0,
        last_overflow=step,
    )
    if rule.bad_limit is not None and bad_steps > rule.bad_limit:
        raise ScaleExhausted(state)
    return dataclasses.replace(state, step=step)


def _grow(state: LossScaleState) -> Any:
    rule, scale = state.policy, state.loss_scale
    with np.errstate(over="ignore", invalid="ignore"):
        grown = scale * rule.number(rule.growth_factor)
        if rule.growth_guard == "finite" and not np.isfinite(grown):
            return scale
        if rule.growth_guard == "ascend" and not scale < rule.number(ASCEND_LIMIT / rule.growth_factor):
            return scale
    return grown if rule.max_scale is None else min(grown, rule.number(rule.max_scale))


def _shrink(state: LossScaleState) -> Any:
    rule, scale = state.policy, state.loss_scale
    with np.errstate(over="ignore", invalid="ignore"):
        shrunk = scale / rule.shrink if rule.backoff == "divide" else scale * rule.shrink
    return max(shrunk, rule.number(rule.min_scale))
