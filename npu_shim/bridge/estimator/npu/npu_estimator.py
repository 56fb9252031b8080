"""npu_bridge.estimator.npu.npu_estimator, see npu_shim.estimator."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.estimator import NPUEstimator, NPUEstimatorSpec

_expose(globals())
