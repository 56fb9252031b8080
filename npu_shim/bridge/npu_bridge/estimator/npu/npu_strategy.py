"""npu_bridge.estimator.npu.npu_strategy, see npu_shim.distributed.job.strategy."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.distributed.job.strategy import NPUStrategy

_expose(globals())
