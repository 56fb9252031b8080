"""hccl.split.api, see npu_shim.distributed.job.ranks."""

from npu_shim.distributed.job.ranks import set_split_strategy_by_idx, set_split_strategy_by_size

__all__ = ["set_split_strategy_by_idx", "set_split_strategy_by_size"]
