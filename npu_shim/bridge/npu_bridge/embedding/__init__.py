"""npu_bridge.embedding, the embedding service of 2023, see npu_shim.bridge.ops.unsupported."""

from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(
    __name__,
    (
        "EmbeddingAdagradOptimizer",
        "EmbeddingAdamOptimizer",
        "EmbeddingAdamWOptimizer",
        "EmbeddingService",
        "es_initializer",
        "path_on_tf",
    ),
)
