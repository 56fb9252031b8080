"""npu_bridge.image.image_ops, see npu_shim.bridge.ops.ops."""

from npu_shim.bridge.ops import gen_ops as gen_npu_image_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.ops import decode_and_crop_and_resize_jpeg, decode_and_resize_jpeg

_expose(globals())
