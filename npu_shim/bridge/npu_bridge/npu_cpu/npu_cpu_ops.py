"""npu_bridge.npu_cpu.npu_cpu_ops, see npu_shim.bridge.ops.ops."""

from npu_shim.bridge.ops import gen_ops as gen_npu_cpu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.ops import dense_image_warp
from npu_shim.bridge.ops.ops import random_choice_with_mask as RandomChoiceWithMask
from npu_shim.bridge.ops.ops import random_choice_with_mask as randomchoicewithmask
from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__,
    (
        "batch_dilate_polys",
        "batch_enqueue",
        "dequeue",
        "embedding_local_index",
        "embeddingrankid",
        "non_zero_with_value_shape",
        "ocr_detection_post_handle",
        "ocr_detection_pre_handle",
        "ocr_find_contours",
        "ocr_identify_pre_handle",
        "ocr_recognition_pre_handle",
        "resize_and_clip_polys",
    ),
)

_expose(globals())
