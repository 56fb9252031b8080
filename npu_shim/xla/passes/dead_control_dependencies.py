"""Prunes nodes without effects that only a tf.group waits for: nothing uses their values.

    x ** 3 has a gradient for its exponent, which nothing uses, but the gradients of an op wait for each other:
    gy:Mul(.., Log(x))   group:NoOp(^gx, ^gy)   gx/dep:Identity(gx, ^group)     becomes     group:NoOp()

The precision plan need not look at it, and no rule is asked for.
"""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.step.packing import DRAWING

# stateful ops that change none of the step's variables
READS = frozenset(["VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VariableV2",
                   "Variable", *DRAWING])  # fmt: skip
ASSERTION = "Assert"  # no step has any: they are left out later, and what waits for one has no effect either


def eliminate(module: Module, context: Any = None) -> None:
    """Removes groups' waits for nodes without effects, then what no result needs; nodes are sorted by name.

    A read that waits for a write through a group still does. A write that waits only for a read no longer does:
    a step's reads come before its writes anyhow.
    """
    graph = module.graph
    busy = _with_effect(graph)
    for node in graph:
        if node.op == "NoOp" and node.controls:
            kept = [control for control in node.controls if control in busy or control.op == ASSERTION]
            if len(kept) < len(node.controls):
                node.set_controls(kept)
    keep_needed(graph)


def keep_needed(graph: Graph) -> None:
    """Removes what no result needs, and sorts the nodes by name."""
    needed = order.ancestors(value.node for value in graph.results.values())
    if len(needed) < len(graph):
        graph.keep(needed)
    graph.sort()


def _with_effect(graph: Graph) -> dict[Node, None]:
    """The nodes that have effects or are in loops and branches, and those that need one of them."""
    calm = {op for op in {node.op for node in graph.nodes.values()} if _changes_nothing(op, graph.module)}
    return order.descendants(node for node in graph if node.op not in calm)


def _changes_nothing(op: str, module: Module) -> bool:
    if op in READS or op == ASSERTION:
        return True
    if op in module.functions or op in V1_OPS:
        return False
    definition = module.definition(op)
    return definition is not None and not definition.is_stateful and not any(arg.is_ref for arg in definition.inputs)
