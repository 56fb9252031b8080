"""npu_bridge.estimator.npu.npu_plugin, see npu_shim.options.entrances.plugin."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.unsupported import module_getattr
from npu_shim.options.entrances.plugin import (
    is_inf_nan_enabled,
    npu_close,
    npu_resource_init,
    npu_resource_shutdown,
    set_device_sat_mode,
)

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
