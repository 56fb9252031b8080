"""npu_bridge.hccl.hccl_ops, see npu_shim.distributed.collectives.hccl and npu_shim.distributed.collectives.exchange."""

from npu_shim.bridge.ops import gen_ops as gen_hccl_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.unsupported import module_getattr
from npu_shim.distributed.collectives.exchange import all_to_all_v, all_to_all_v_c
from npu_shim.distributed.collectives.exchange import all_to_all_v as all_to_all_v_dynamic
from npu_shim.distributed.collectives.hccl import allgather, allreduce, broadcast, reduce, reduce_scatter

__getattr__ = module_getattr(
    __name__,
    (
        "gather_all_to_all_v",
        "receive",
        "remote_read",
        "remote_ref_read",
        "remote_scatter_write",
        "remote_write",
        "send",
    ),
)

_expose(globals())
