"""tf.contrib.opt."""

from npu_shim.compat.contrib.opt.plain import (
    AdaMaxOptimizer,
    AddSignOptimizer,
    LARSOptimizer,
    LazyAdamOptimizer,
    NadamOptimizer,
    PowerSignOptimizer,
)
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
    "AdaMaxOptimizer", "AdamWOptimizer", "AddSignOptimizer", "DecoupledWeightDecayExtension", "LARSOptimizer",
    "LazyAdamOptimizer", "MomentumWOptimizer", "MovingAverageOptimizer", "MultitaskOptimizerWrapper", "NadamOptimizer",
    "PowerSignOptimizer", "VariableClippingOptimizer", "clip_gradients_by_global_norm", "clip_gradients_by_norm",
    "extend_with_decoupled_weight_decay",
]  # fmt: skip
