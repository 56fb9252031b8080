"""npu_bridge.estimator.npu.npu_hook, see npu_shim.hooks and npu_shim.iterations."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.hooks import (
    NPUBroadcastGlobalVariablesHook,
    NPUCheckpointSaverHook,
    NPUOutputTensorHook,
    NPUShutDownHook,
    TellMeStepOrLossHook,
    broadcast_global_variables,
)
from npu_shim.iterations import SetIterationsVarHook
from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("NPUInfeedOutfeedSessionHook", "NPULogOutfeedSessionHook"))

_expose(globals())
