"""npu_bridge.embedding.embedding_table_map_policy, see npu_shim.bridge.ops.unsupported."""

from npu_shim.bridge.ops.unsupported import module_getattr

__getattr__ = module_getattr(__name__, ("AutoMergeTableMapPolicy", "BaseTableMapPolicy", "NoneTableMapPolicy",))
