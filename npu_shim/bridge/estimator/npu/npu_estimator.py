"""npu_bridge.estimator.npu.npu_estimator, see npu_shim.estimator."""

from npu_shim.estimator import NPUEstimator, NPUEstimatorSpec
