"""The vendor's generated ops, which scripts reach as `npu_unary_ops`, `npu_aicore_ops` or `helper.get_gen_ops()`."""

from npu_shim.bridge.ops.float_status import (
    npu_alloc_float_status,
    npu_clear_float_status,
    npu_clear_float_status_v2,
    npu_get_float_status,
    npu_get_float_status_v2,
)
from npu_shim.bridge.ops.inputs import decode_image_v3, file_constant
from npu_shim.bridge.ops.inputs import getshape as get_shape
from npu_shim.bridge.ops.ops import (
    centralization,
    dense_image_warp,
    fast_gelu,
    fast_gelu_grad,
    fast_gelu_v2,
    fast_gelu_v2_grad,
    gelu,
    gelu_grad,
    k_means_centroids,
    random_choice_with_mask,
    scatter_elements,
)
from npu_shim.bridge.ops.ops import nonzero as non_zero
from npu_shim.bridge.ops.ops import prelu as p_relu
from npu_shim.bridge.ops.optimizer_steps import LARS as lars
from npu_shim.bridge.ops.optimizer_steps import LARSV2 as lars_v2
from npu_shim.bridge.ops.optimizer_steps import (
    adam_apply_one_assign,
    adam_apply_one_with_decay_assign,
    lamb_apply_optimizer_assign,
    lamb_apply_weight_assign,
)
from npu_shim.bridge.ops.resources import initialize_system as npu_init
from npu_shim.bridge.ops.resources import shutdown_system as npu_shutdown
from npu_shim.bridge.ops.rnn import basic_lstm_cell
from npu_shim.bridge.ops.unsupported import ADVICE, module_getattr

__all__ = [
    "adam_apply_one_assign",
    "adam_apply_one_with_decay_assign",
    "basic_lstm_cell",
    "centralization",
    "decode_image_v3",
    "dense_image_warp",
    "fast_gelu",
    "fast_gelu_grad",
    "fast_gelu_v2",
    "fast_gelu_v2_grad",
    "file_constant",
    "gelu",
    "gelu_grad",
    "get_shape",
    "k_means_centroids",
    "lamb_apply_optimizer_assign",
    "lamb_apply_weight_assign",
    "lars",
    "lars_v2",
    "non_zero",
    "npu_alloc_float_status",
    "npu_clear_float_status",
    "npu_clear_float_status_v2",
    "npu_get_float_status",
    "npu_get_float_status_v2",
    "npu_init",
    "npu_shutdown",
    "p_relu",
    "random_choice_with_mask",
    "scatter_elements",
]

__getattr__ = module_getattr(__name__, ADVICE)
