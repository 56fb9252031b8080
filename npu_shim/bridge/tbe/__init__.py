"""npu_bridge.tbe."""
