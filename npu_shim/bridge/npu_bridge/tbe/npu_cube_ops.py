"""npu_bridge.tbe.npu_cube_ops, see npu_shim.bridge.ops.deformable."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.deformable import deformable_conv2d
from npu_shim.bridge.ops.exposed import expose as _expose

_expose(globals())
