"""ScopedGraphManager: on the NPU it unloads the graph that initialized the variables; here there is none.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.scoped_graph_manager.
"""


class ScopedGraphManager:
    """Scope for the run of the variables' initializers; it changes nothing."""

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self):
        """Does nothing."""

    def stop(self):
        """Does nothing."""
