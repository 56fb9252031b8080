"""tf.contrib.opt."""

from npu_shim.compat.contrib.opt.plain import (
    AdaMaxOptimizer,
    AddSignOptimizer,
    LARSOptimizer,
    LazyAdamOptimizer,
    NadamOptimizer,
    PowerSignOptimizer,
)
from npu_shim.compat.contrib.opt.shampoo import ShampooOptimizer
from npu_shim.compat.contrib.opt.sign_decay import get_cosine_decay_fn, get_linear_decay_fn, get_restart_decay_fn
from npu_shim.compat.contrib.opt.variants import AdamGSOptimizer, LazyAdamGSOptimizer, RegAdagradOptimizer
from npu_shim.compat.contrib.opt.wrappers import (
    AdamWOptimizer,
    DecoupledWeightDecayExtension,
    MomentumWOptimizer,
    MovingAverageOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    clip_gradients_by_global_norm,
    clip_gradients_by_norm,
    extend_with_decoupled_weight_decay,
)

__all__ = [
    "AdaMaxOptimizer", "AdamGSOptimizer", "AdamWOptimizer", "AddSignOptimizer", "DecoupledWeightDecayExtension",
    "LARSOptimizer", "LazyAdamGSOptimizer", "LazyAdamOptimizer", "MomentumWOptimizer", "MovingAverageOptimizer",
    "MultitaskOptimizerWrapper", "NadamOptimizer", "PowerSignOptimizer", "RegAdagradOptimizer", "ShampooOptimizer",
    "VariableClippingOptimizer", "clip_gradients_by_global_norm", "clip_gradients_by_norm",
    "extend_with_decoupled_weight_decay", "get_cosine_decay_fn", "get_linear_decay_fn", "get_restart_decay_fn",
]  # fmt: skip
