"""npu_bridge.estimator.npu.npu_plugin, see npu_shim.plugin."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.plugin import (
    is_inf_nan_enabled,
    npu_close,
    npu_resource_init,
    npu_resource_shutdown,
    set_device_sat_mode,
)
from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__,
    (
        "get_rdma_cache",
        "get_var_addr_and_size",
        "init_rdma_pool",
        "malloc_shared_memory",
        "rdma_remote_init",
        "rdma_remote_register",
    ),
)

_expose(globals())
