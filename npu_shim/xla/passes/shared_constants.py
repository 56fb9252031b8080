"""Has all users of equal constants take one of them: a gradient and an optimizer make theirs anew for each variable.

    m1:Mul(g1, a:Const(0.1))   m2:Mul(g2, b:Const(0.1))      becomes      m1:Mul(g1, a)   m2:Mul(g2, a)

Of BERT-large's step every fifth node is such a copy, which every later pass, the interpreter among them, would go
through. What waits for something stays as it is: in a loop or on a side of a conditional it lives there alone.
"""

from __future__ import annotations

from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module


def share(module: Module) -> None:
    """Merges the constants of a module's graph that were read equal; those that are fetched or fed stay."""
    graph = module.graph
    kept: dict[bytes, Node] = {}
    copies: dict[Node, Node] = {}
    apart = {value.node for value in graph.results.values()}
    for node in graph:
        if node.op == "Const" and node.is_untouched and not node.controls and node not in apart:
            first = kept.setdefault(node.proto.attr["value"].SerializeToString(), node)
            if first is not node:
                copies[node] = first
    for user in dict.fromkeys(user for copy in copies for user in copy.users()):
        if not copies.keys().isdisjoint(user.controls):
            user.set_controls([copies.get(control, control) for control in user.controls])
        user.set_inputs([copies[value.node].value if value.node in copies else value for value in user.inputs])
    graph.remove(copies)
