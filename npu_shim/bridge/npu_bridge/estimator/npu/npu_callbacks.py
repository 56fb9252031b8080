"""npu_bridge.estimator.npu.npu_callbacks, see npu_shim.estimator.keras."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.estimator.keras import NPUBroadcastGlobalVariablesCallback

_expose(globals())
