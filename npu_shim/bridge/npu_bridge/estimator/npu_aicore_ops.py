"""npu_bridge.estimator.npu_aicore_ops: all ops behind a handle of the module's name, see npu_shim.bridge.ops.ops."""

from npu_shim.bridge.ops import gen_ops as npu_aicore_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.ops import (
    centralization,
    dropout_v4,
    fast_gelu,
    fast_gelu_grad,
    fast_gelu_v2,
    fast_gelu_v2_grad,
    layer_norm,
    nonzero,
    prelu,
)
from npu_shim.bridge.ops.ops import dropout as dropout_v3
from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__,
    (
        "lru_cache_v2",
        "nonzerowithvalue",
        "prod_env_mat_a",
        "prodforcesea",
        "prodvirialsea",
        "tabulatefusion",
        "tabulatefusiongrad",
        "tabulatefusionsea",
        "tabulatefusionseagrad",
    ),
)

_expose(globals())
