"""npu_bridge.estimator.npu.npu_common, see npu_shim.distributed.job.ranks."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.distributed.job.ranks import NPUBasics

_expose(globals())
