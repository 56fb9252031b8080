"""npu_bridge.image."""
