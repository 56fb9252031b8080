"""npu_bridge.tf_adapter, the vendor's native module: its functions under its names, see npu_shim.options.plugin."""

from npu_shim.options.plugin import npu_close as NpuClose
from npu_shim.options.plugin import npu_resource_init as PluginInit
from npu_shim.options.plugin import npu_resource_shutdown as PluginFinalize
