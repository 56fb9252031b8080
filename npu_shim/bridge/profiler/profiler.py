"""npu_bridge.profiler.profiler, see npu_shim.profiling."""

from npu_shim.profiling import Profiler
