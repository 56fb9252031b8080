"""npu_bridge.estimator.npu.npu_common, see npu_shim.ranks."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.ranks import NPUBasics

_expose(globals())
