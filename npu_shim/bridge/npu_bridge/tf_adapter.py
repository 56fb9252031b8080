"""npu_bridge.tf_adapter, the vendor's native module: the functions of options.entrances.plugin by its names."""

from npu_shim.options.entrances.plugin import npu_close as NpuClose
from npu_shim.options.entrances.plugin import npu_resource_init as PluginInit
from npu_shim.options.entrances.plugin import npu_resource_shutdown as PluginFinalize
