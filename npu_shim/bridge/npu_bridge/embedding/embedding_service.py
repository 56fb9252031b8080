"""npu_bridge.embedding.embedding_service, see npu_shim.bridge.ops.unsupported."""

from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("ESWorker", "es_initializer"))
