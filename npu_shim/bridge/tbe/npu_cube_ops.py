"""npu_bridge.tbe.npu_cube_ops, see npu_shim.deformable."""

from npu_shim import gen_ops as gen_npu_ops
from npu_shim.bridge_imports import expose as _expose
from npu_shim.deformable import deformable_conv2d

_expose(globals())
