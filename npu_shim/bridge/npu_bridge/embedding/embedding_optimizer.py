"""npu_bridge.embedding.embedding_optimizer, see npu_shim.bridge.ops.unsupported."""

from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("AdagradOptimizer", "AdamOptimizer", "AdamWOptimizer",))
