"""npu_bridge.estimator.npu.npu_decorator, see npu_shim.resources."""

from npu_shim.resources import decorator_tf_session
