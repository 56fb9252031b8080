"""Leaves out tests that only spare a session a slower one: XLA makes the slower one where it makes what is tested.

    q:IsFinite(sum of squares){QUICK_TEST}   cond(q, true, all(finite(x)))    becomes    q:Const(False)   all(finite(x))

The sums of squares are reductions of their own, and the slower test stands behind a conditional, where it reads again
what was computed.
"""

from __future__ import annotations

from npu_shim.options.ops.scopes import QUICK_TEST
from npu_shim.rewriter.analysis.frames import frames
from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes import dead_control_dependencies

BOOL = dtypes.NUMBERS["bool"]


def fail(module: Module) -> None:
    """Makes the quick tests of a module false, and removes what only they needed; results, and tests in loops, stay."""
    graphs = [module.graph, *(module.functions[name] for name in module.functions)]
    quick = [node for graph in graphs for node in graph if QUICK_TEST in node.attrs]
    if not quick:
        return
    apart = {value.node for graph in graphs for value in graph.results.values()}
    framed = frames(module.graph)
    for node in quick:
        if node not in apart and not framed.get(node):
            node.turn_into("Const", [], {"dtype": DType(BOOL), "value": Tensor(BOOL, (), (False,))})
    dead_control_dependencies.keep_needed(module.graph)
