"""Why what looks like attention is left as it is. No TensorFlow."""

from __future__ import annotations

from npu_shim.rewriter.ir.graph import Node


class Miss(Exception):
    """What looks like attention and is not, or not one that a kernel computes.

    Attributes:
        reason: one line.
        node: the node at which that shows, None for none.
    """

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node
