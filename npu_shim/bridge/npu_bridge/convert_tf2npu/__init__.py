"""npu_bridge.convert_tf2npu, the migration tool; see npu_shim.compat.conversion.scripts."""
