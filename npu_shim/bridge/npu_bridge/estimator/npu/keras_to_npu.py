"""npu_bridge.estimator.npu.keras_to_npu, see npu_shim.estimator.keras."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.estimator.keras import model_to_npu_estimator

_expose(globals())
