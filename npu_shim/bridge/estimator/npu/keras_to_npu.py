"""npu_bridge.estimator.npu.keras_to_npu, see npu_shim.keras."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.keras import model_to_npu_estimator

_expose(globals())
