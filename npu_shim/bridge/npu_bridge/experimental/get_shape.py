"""npu_bridge.experimental.get_shape, see npu_shim.bridge.ops.inputs."""

from npu_shim.bridge.ops.inputs import getshape
