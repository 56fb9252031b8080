"""npu_bridge.estimator.npu.npu_optimizer, see npu_shim.distributed, npu_shim.estimator and npu_shim.loss_scale."""

from npu_shim.bridge.ops import gen_ops as gen_npu_ops
from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.distributed.collectives.hccl import NPUDistributedOptimizer, npu_allreduce
from npu_shim.distributed.collectives.hccl import average as allreduce
from npu_shim.distributed.collectives.hccl import reduce_gradient as reduce
from npu_shim.estimator.keras import KerasDistributeOptimizer, npu_distributed_optimizer_wrapper
from npu_shim.loss_scale import NPUOptimizer

_expose(globals())
