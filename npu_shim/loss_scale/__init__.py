"""Loss scaling: one schedule, its TensorFlow managers, and an optimizer that skips the steps that overflow.

Importing this package imports neither TensorFlow nor numpy; every public name is loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

# public name -> module of this package that defines it
PUBLIC = {
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


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError("module 'npu_shim.loss_scale' has no attribute '%s'" % name)
    return getattr(importlib.import_module(__name__ + "." + PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(list(globals()) + list(PUBLIC))
