"""npu_bridge.hccl."""
