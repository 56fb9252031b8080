"""npu_bridge.experimental."""
