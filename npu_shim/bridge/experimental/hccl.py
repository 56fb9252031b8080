"""npu_bridge.experimental.hccl, see npu_shim.distributed."""

from npu_shim.distributed import allgather, allreduce, broadcast, reduce, reduce_scatter
