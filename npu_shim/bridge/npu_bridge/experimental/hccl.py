"""npu_bridge.experimental.hccl, see npu_shim.distributed.job.ranks."""

from npu_shim.distributed.job.ranks import get_rank_size as get_actual_rank_size
from npu_shim.distributed.job.ranks import world_rank as get_user_rank_id
from npu_shim.distributed.job.ranks import world_size as get_user_rank_size
