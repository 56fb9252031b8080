"""The processes that npu-shim launch starts on one machine."""
