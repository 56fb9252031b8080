"""npu_bridge.estimator.npu.npu_strategy, see npu_shim.strategy."""

from npu_shim.strategy import NPUStrategy
