"""npu_bridge.estimator.npu.npu_config, see npu_shim.options.entrances.run_config."""

from npu_shim.bridge.ops.exposed import expose as _expose
from npu_shim.options.entrances.run_config import (
    DumpConfig,
    DynamicInputConfig,
    ExperimentalConfig,
    GraphMemoryOptimizeConfig,
    MemoryConfig,
    NPURunConfig,
    ProfilingConfig,
)
from npu_shim.options.ops.scopes import NpuExecutePlacement

_expose(globals())
