"""npu_bridge.estimator.npu.npu_estimator, see npu_shim.estimator.estimator."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.estimator.estimator import NPUEstimator, NPUEstimatorSpec

_expose(globals())
