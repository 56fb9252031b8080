"""npu_bridge.experimental.dataset_ops, see npu_shim.inputs."""

from npu_shim.inputs import map, map_and_batch
