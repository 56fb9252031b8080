"""Loss scaling: one schedule, its TensorFlow managers, and an optimizer that skips the steps that overflow.

Importing this package imports neither TensorFlow nor numpy; every public name is loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# public name -> module of this package that defines it, for the import at first use; below for type checkers
_HOMES = {
    "POLICIES": "schedule",
    "Policy": "schedule",
    "LossScaleState": "schedule",
    "ScaleExhausted": "schedule",
    "initial_state": "schedule",
    "next_state": "schedule",
    "policy": "schedule",
    "skipped_until": "schedule",
    "LossScaleManager": "managers",
    "FixedLossScaleManager": "managers",
    "ExponentialUpdateLossScaleManager": "managers",
    "ScheduledLossScaleManager": "managers",
    "LossScaleOptimizer": "optimizer",
    "NPULossScaleOptimizer": "optimizer",
    "NPUOptimizer": "npu_optimizer",
    "AccumulatingOptimizer": "accumulate",
    "scaled_gradients": "gradients",
    "clip_by_global_norm": "gradients",
    "all_finite": "overflow",
    "NanLossHook": "hooks",
    "SkippedStepsHook": "hooks",
    "tolerant_hooks": "hooks",
    "summaries": "hooks",
    "LossScaleSaver": "checkpoint",
    "init_from_checkpoint": "checkpoint",
    "warm_start_settings": "checkpoint",
    "DynamicLossScaleManager": "mindspore",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from npu_shim.loss_scale.accumulate import AccumulatingOptimizer as AccumulatingOptimizer
    from npu_shim.loss_scale.checkpoint import LossScaleSaver as LossScaleSaver
    from npu_shim.loss_scale.checkpoint import init_from_checkpoint as init_from_checkpoint
    from npu_shim.loss_scale.checkpoint import warm_start_settings as warm_start_settings
    from npu_shim.loss_scale.gradients import clip_by_global_norm as clip_by_global_norm
    from npu_shim.loss_scale.gradients import scaled_gradients as scaled_gradients
    from npu_shim.loss_scale.hooks import NanLossHook as NanLossHook
    from npu_shim.loss_scale.hooks import SkippedStepsHook as SkippedStepsHook
    from npu_shim.loss_scale.hooks import summaries as summaries
    from npu_shim.loss_scale.hooks import tolerant_hooks as tolerant_hooks
    from npu_shim.loss_scale.managers import ExponentialUpdateLossScaleManager as ExponentialUpdateLossScaleManager
    from npu_shim.loss_scale.managers import FixedLossScaleManager as FixedLossScaleManager
    from npu_shim.loss_scale.managers import LossScaleManager as LossScaleManager
    from npu_shim.loss_scale.managers import ScheduledLossScaleManager as ScheduledLossScaleManager
    from npu_shim.loss_scale.mindspore import DynamicLossScaleManager as DynamicLossScaleManager
    from npu_shim.loss_scale.npu_optimizer import NPUOptimizer as NPUOptimizer
    from npu_shim.loss_scale.optimizer import LossScaleOptimizer as LossScaleOptimizer
    from npu_shim.loss_scale.optimizer import NPULossScaleOptimizer as NPULossScaleOptimizer
    from npu_shim.loss_scale.overflow import all_finite as all_finite
    from npu_shim.loss_scale.schedule import POLICIES as POLICIES
    from npu_shim.loss_scale.schedule import LossScaleState as LossScaleState
    from npu_shim.loss_scale.schedule import Policy as Policy
    from npu_shim.loss_scale.schedule import ScaleExhausted as ScaleExhausted
    from npu_shim.loss_scale.schedule import initial_state as initial_state
    from npu_shim.loss_scale.schedule import next_state as next_state
    from npu_shim.loss_scale.schedule import policy as policy
    from npu_shim.loss_scale.schedule import skipped_until as skipped_until
else:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError("module 'npu_shim.loss_scale' has no attribute '%s'" % name)
        return getattr(importlib.import_module(__name__ + "." + _HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
