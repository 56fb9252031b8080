"""npu_bridge.estimator.npu.npu_strategy, see npu_shim.strategy."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.strategy import NPUStrategy

_expose(globals())
