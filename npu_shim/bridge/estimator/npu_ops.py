"""npu_bridge.estimator.npu_ops, see npu_shim.ops and npu_shim.resources."""

from npu_shim.ops import dropout
from npu_shim.resources import initialize_system, shutdown_system
