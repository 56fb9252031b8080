"""npu_bridge.experimental.image, see npu_shim.bridge.ops.inputs."""

from npu_shim.bridge.ops.inputs import decode_image, decode_image_v3
