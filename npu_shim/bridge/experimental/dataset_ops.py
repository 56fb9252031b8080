"""npu_bridge.experimental.dataset_ops, see npu_shim.unsupported."""

from npu_shim.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("npu_device_dataset",))
