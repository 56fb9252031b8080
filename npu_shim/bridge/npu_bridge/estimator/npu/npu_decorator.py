"""npu_bridge.estimator.npu.npu_decorator, see npu_shim.bridge.ops.resources."""

from npu_shim.bridge.ops.resources import decorator_tf_session
