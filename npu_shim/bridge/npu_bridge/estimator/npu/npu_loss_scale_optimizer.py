"""npu_bridge.estimator.npu.npu_loss_scale_optimizer, see npu_shim.loss_scale."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.loss_scale import FixedLossScaleManager, NPULossScaleOptimizer

_expose(globals())
