"""Loss scaling: one schedule, its TensorFlow managers, and an optimizer that skips the steps that overflow.

Importing this package imports neither TensorFlow nor numpy; every public name is loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# public name -> module of this package that defines it, for the import at first use; below for type checkers
_HOMES = {
    "POLICIES": "managers.schedule",
    "Policy": "managers.schedule",
    "LossScaleState": "managers.schedule",
    "ScaleExhausted": "managers.schedule",
    "initial_state": "managers.schedule",
    "next_state": "managers.schedule",
    "policy": "managers.schedule",
    "skipped_until": "managers.schedule",
    "LossScaleManager": "managers.managers",
    "FixedLossScaleManager": "managers.managers",
    "ExponentialUpdateLossScaleManager": "managers.managers",
    "ScheduledLossScaleManager": "managers.managers",
    "LossScaleOptimizer": "optimizers.optimizer",
    "NPULossScaleOptimizer": "optimizers.optimizer",
    "NPUOptimizer": "optimizers.npu_optimizer",
    "AccumulatingOptimizer": "optimizers.accumulate",
    "scaled_gradients": "optimizers.gradients",
    "clip_by_global_norm": "optimizers.gradients",
    "all_finite": "steps.overflow",
    "NanLossHook": "steps.hooks",
    "SkippedStepsHook": "steps.hooks",
    "tolerant_hooks": "steps.hooks",
    "summaries": "steps.hooks",
    "LossScaleSaver": "checkpoints.checkpoint",
    "init_from_checkpoint": "checkpoints.checkpoint",
    "warm_start_settings": "checkpoints.checkpoint",
    "DynamicLossScaleManager": "managers.mindspore",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from npu_shim.loss_scale.checkpoints.checkpoint import LossScaleSaver as LossScaleSaver
    from npu_shim.loss_scale.checkpoints.checkpoint import init_from_checkpoint as init_from_checkpoint
    from npu_shim.loss_scale.checkpoints.checkpoint import warm_start_settings as warm_start_settings
    from npu_shim.loss_scale.managers.managers import (
        ExponentialUpdateLossScaleManager as ExponentialUpdateLossScaleManager,
    )
    from npu_shim.loss_scale.managers.managers import FixedLossScaleManager as FixedLossScaleManager
    from npu_shim.loss_scale.managers.managers import LossScaleManager as LossScaleManager
    from npu_shim.loss_scale.managers.managers import ScheduledLossScaleManager as ScheduledLossScaleManager
    from npu_shim.loss_scale.managers.mindspore import DynamicLossScaleManager as DynamicLossScaleManager
    from npu_shim.loss_scale.managers.schedule import POLICIES as POLICIES
    from npu_shim.loss_scale.managers.schedule import LossScaleState as LossScaleState
    from npu_shim.loss_scale.managers.schedule import Policy as Policy
    from npu_shim.loss_scale.managers.schedule import ScaleExhausted as ScaleExhausted
    from npu_shim.loss_scale.managers.schedule import initial_state as initial_state
    from npu_shim.loss_scale.managers.schedule import next_state as next_state
    from npu_shim.loss_scale.managers.schedule import policy as policy
    from npu_shim.loss_scale.managers.schedule import skipped_until as skipped_until
    from npu_shim.loss_scale.optimizers.accumulate import AccumulatingOptimizer as AccumulatingOptimizer
    from npu_shim.loss_scale.optimizers.gradients import clip_by_global_norm as clip_by_global_norm
    from npu_shim.loss_scale.optimizers.gradients import scaled_gradients as scaled_gradients
    from npu_shim.loss_scale.optimizers.npu_optimizer import NPUOptimizer as NPUOptimizer
    from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer as LossScaleOptimizer
    from npu_shim.loss_scale.optimizers.optimizer import NPULossScaleOptimizer as NPULossScaleOptimizer
    from npu_shim.loss_scale.steps.hooks import NanLossHook as NanLossHook
    from npu_shim.loss_scale.steps.hooks import SkippedStepsHook as SkippedStepsHook
    from npu_shim.loss_scale.steps.hooks import summaries as summaries
    from npu_shim.loss_scale.steps.hooks import tolerant_hooks as tolerant_hooks
    from npu_shim.loss_scale.steps.overflow import all_finite as all_finite
else:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError("module 'npu_shim.loss_scale' has no attribute '%s'" % name)
        return getattr(importlib.import_module(__name__ + "." + _HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
