"""The rewriter from end to end: a GraphDef is read, planned, edited, verified and written again.

inline     function calls are inlined, so that caller and callee are planned together
read       GraphDef -> GraphView
plan       one decision for each type slot, and the Casts
apply      the plan's edits on the GraphDef
verify     the result, read again, keeps the contract, or nothing is returned
outline    the calls are written back, and inlined once more: that must give the verified graph
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Sequence, Tuple

from .collector import without_collector
from .errors import ConfigError, VerifyError
from .graph.graph_view import GraphView
from .graph.kernel_table import KernelTable
from .graphdef import reading
from .graphdef.apply import apply, sort_nodes
from .graphdef.inlining import inline
from .graphdef.outlining import outline
from .graphdef.reversal import require_original
from .graphdef.round_trip import require_same_flat
from .inference.ranges import Ranges
from .lint import rules
from .planner import report
from .planner.decisions import Plan
from .planner.overrides import NO_OVERRIDES, Overrides
from .planner.plan import plan
from .planner.verify import verify
from .tables.op_table import OpTable
from .tables.policy import PrecisionPolicy


@dataclass(frozen=True)
class Asked:
    """What is asked of a rewrite.

    Attributes:
        policy: the precision mode.
        table: which list each op is on.
        kernels: what runs where.
        overrides: dtypes of single ops.
        warnings: what reading the user's options brought up, for the report.
        unmatched: given the graph, one line for each of the user's names that stands for nothing in it.
    """

    policy: PrecisionPolicy
    table: OpTable
    kernels: KernelTable
    overrides: Overrides = NO_OVERRIDES
    warnings: Tuple[str, ...] = ()
    unmatched: Callable[[GraphView], Tuple[str, ...]] = lambda view: ()


@dataclass(frozen=True)
class Rewritten:
    """A rewritten GraphDef (the given one itself where nothing changes), its plan, and the seconds that it took."""

    graph_def: Any
    plan: Plan
    seconds: float


def rewrite_graph_def(graph_def: Any, feeds: Any, preserved: Any, asked: Asked) -> Rewritten:
    """Inlines, reads, plans, applies, verifies and outlines.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        asked: the mode, the lists and the kernels.

    Raises:
        PlanError: an op must run in a dtype that the profile or the op does not have.
        VerifyError: the result breaks the contract.
    """
    start = time.perf_counter()
    with without_collector():
        flat = inline(graph_def, feeds, preserved)
        before = reading.read(flat.graph_def, feeds, preserved)
        facts = Ranges(before.nodes, flat.graph_def.node, before.fed)
        warnings, unmatched = asked.warnings + flat.warnings, asked.unmatched(before)
        planned = plan(before, asked.table, asked.policy, asked.kernels, asked.overrides, warnings, unmatched, facts)
        planned = _with_warnings(planned, report.nothing_lowered(planned, asked.table))
        result = graph_def
        if planned.changed:
            planned = _with_warnings(planned, rules.warnings(planned, flat.graph_def.node, facts))
            result, touched = apply(planned, flat.graph_def)
            _verify(planned, flat.graph_def, result, touched, asked.kernels)
            outlined = outline(flat, result)
            require_same_flat(flat, result, outlined)
            result = outlined
            sort_nodes(result)
    return Rewritten(result, planned, time.perf_counter() - start)


def _verify(planned: Plan, before: Any, after: Any, touched: Sequence[int], kernels: KernelTable) -> None:
    """Raises VerifyError if a flat graph is not the one before it with the plan's edits, or breaks the contract."""
    try:
        view = reading.reread(planned.view, after, touched)
    except ConfigError as error:
        raise VerifyError([str(error)]) from error
    verify(planned.view, view, kernels, planned.emulated(), planned)
    require_original(planned, before, after, touched)


def _with_warnings(planned: Plan, more: Tuple[str, ...]) -> Plan:
    return replace(planned, warnings=planned.warnings + more)
