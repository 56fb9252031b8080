"""npu_bridge.helper."""
