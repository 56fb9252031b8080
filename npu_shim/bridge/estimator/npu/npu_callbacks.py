"""npu_bridge.estimator.npu.npu_callbacks, see npu_shim.keras."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.keras import NPUBroadcastGlobalVariablesCallback

_expose(globals())
