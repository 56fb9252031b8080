"""npu_bridge.profiler.profiler, see npu_shim.session.observers.profiling."""

from npu_shim.session.observers.profiling import Profiler
