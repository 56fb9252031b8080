"""npu_bridge.experimental.file_constant, see npu_shim.inputs."""

from npu_shim.inputs import file_constant
