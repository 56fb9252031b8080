"""npu_bridge.estimator.npu.npu_common, see npu_shim.ranks."""

from npu_shim.ranks import NPUBasics
