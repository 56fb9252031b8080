"""npu_bridge.experimental.get_shape, see npu_shim.unsupported."""

from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("get_shape",))
