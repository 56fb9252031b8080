"""npu_bridge.scoped_graph_manager, see npu_shim.bridge.ops.graph_manager."""

from npu_shim.bridge.ops.graph_manager import ScopedGraphManager
