"""npu_bridge.hccl.hccl_ops, see npu_shim.distributed."""

from npu_shim.distributed import (
    all_to_all_v,
    all_to_all_v_c,
    allgather,
    allreduce,
    broadcast,
    reduce,
    reduce_scatter,
)
