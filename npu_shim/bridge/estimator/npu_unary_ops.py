"""npu_bridge.estimator.npu_unary_ops: the vendor's handle to its ops has the module's name."""

from npu_shim import ops as npu_unary_ops
