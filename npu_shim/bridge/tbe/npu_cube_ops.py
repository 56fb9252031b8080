"""npu_bridge.tbe.npu_cube_ops, see npu_shim.unsupported."""

from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("deformable_conv2d",))
