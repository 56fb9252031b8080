"""npu_bridge.experimental.file_constant, see npu_shim.bridge.ops.inputs."""

from npu_shim.bridge.ops.inputs import file_constant
