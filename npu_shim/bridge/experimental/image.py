"""npu_bridge.experimental.image, see npu_shim.inputs."""

from npu_shim.inputs import decode_image, decode_image_v3
