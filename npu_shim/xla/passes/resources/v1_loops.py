"""The nodes inside of TensorFlow 1's loops, while a step still has them."""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.graph.arguments import source_of


def inside(graph_def: Any) -> set[str]:
    """Returns the names of the nodes of a tf.GraphDef that are inside of loops (Enter to Exit)."""
    if not any(node.op == "Enter" for node in graph_def.node):
        return set()
    consumers: dict[str, list[Any]] = {}
    for node in graph_def.node:
        for text in node.input:
            consumers.setdefault(source_of(text), []).append(node)
    depth = {node.name: 0 for node in graph_def.node if not node.input}
    pending = list(depth)
    for name in pending:  # grows while it is read
        for node in consumers.get(name, ()):
            if node.name not in depth:
                depth[node.name] = depth[name] + {"Enter": 1, "Exit": -1}.get(node.op, 0)
                pending.append(node.name)
    return {name for name, below in depth.items() if below > 0}
