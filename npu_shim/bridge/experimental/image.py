"""npu_bridge.experimental.image, see npu_shim.unsupported."""

from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("decode_image_v3",))
