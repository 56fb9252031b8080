"""npu_bridge.experimental.dataset_ops, see npu_shim.bridge.ops.inputs."""

from npu_shim.bridge.ops.inputs import map, map_and_batch
