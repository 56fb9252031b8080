"""npu_bridge.estimator.npu.npu_optimizer, see npu_shim.distributed, npu_shim.keras and npu_shim.loss_scale."""

from npu_shim import gen_ops as gen_npu_ops
from npu_shim.bridge_imports import expose as _expose
from npu_shim.distributed import NPUDistributedOptimizer, npu_allreduce
from npu_shim.distributed import average as allreduce
from npu_shim.distributed import reduce_gradient as reduce
from npu_shim.keras import KerasDistributeOptimizer, npu_distributed_optimizer_wrapper
from npu_shim.loss_scale import NPUOptimizer

_expose(globals())
