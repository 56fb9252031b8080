"""npu_bridge.profiler."""
