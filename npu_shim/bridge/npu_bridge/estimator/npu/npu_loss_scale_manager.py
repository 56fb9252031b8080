"""npu_bridge.estimator.npu.npu_loss_scale_manager, see npu_shim.loss_scale."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, FixedLossScaleManager

_expose(globals())
