"""npu_bridge.profiler.profiler, see npu_shim.session.profiling."""

from npu_shim.session.profiling import Profiler
