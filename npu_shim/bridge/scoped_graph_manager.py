"""npu_bridge.scoped_graph_manager, see npu_shim.graph_manager."""

from npu_shim.graph_manager import ScopedGraphManager
