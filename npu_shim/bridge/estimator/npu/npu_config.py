"""npu_bridge.estimator.npu.npu_config, see npu_shim.run_config."""

from npu_shim.bridge_imports import expose as _expose
from npu_shim.run_config import (
    DumpConfig,
    DynamicInputConfig,
    ExperimentalConfig,
    GraphMemoryOptimizeConfig,
    MemoryConfig,
    NpuExecutePlacement,
    NPURunConfig,
    ProfilingConfig,
)

_expose(globals())
