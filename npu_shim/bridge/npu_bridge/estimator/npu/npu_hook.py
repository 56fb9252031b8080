"""npu_bridge.estimator.npu.npu_hook, see npu_shim.estimator.hooks and npu_shim.estimator.iterations."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.bridge.ops.unsupported import module_getattr
from npu_shim.estimator.hooks import (
    NPUBroadcastGlobalVariablesHook,
    NPUCheckpointSaverHook,
    NPUOutputTensorHook,
    NPUShutDownHook,
    TellMeStepOrLossHook,
    broadcast_global_variables,
)
from npu_shim.estimator.iterations import SetIterationsVarHook

__getattr__ = module_getattr(__name__, ("NPUInfeedOutfeedSessionHook", "NPULogOutfeedSessionHook"))

_expose(globals())
