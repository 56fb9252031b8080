"""ScopedGraphManager: on the NPU it unloads the graph that initialized the variables; here there is none.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.scoped_graph_manager.
"""

from __future__ import annotations

from typing import Any


class ScopedGraphManager:
    """Scope for the run of the variables' initializers; it changes nothing."""

    def __enter__(self) -> ScopedGraphManager:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""
