"""The rewriter from end to end: one list of passes, in the order in which they run.

GraphDef --inline--> flat GraphDef --read--> GraphView --plan--> Plan
flat GraphDef, Plan --apply--> flat result --outline--> GraphDef

The passes work on the GraphDef that their Module is, which is not read into nodes with use lists: the planner wants
immutable nodes in an array, and reading BERT-large's 26,477 nodes into a module first, and the planner's view from
there, takes 0.25 s where the view alone takes 0.20 s (least of 12 turns). What `apply` and `outline` promise is
compared node by node and edge by edge. In between the graph is flat, and its structure is not that of a graph that can
run: nothing ties the constants of a loop's body to the loop.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Sequence, Tuple

from .collector import without_collector
from .errors import ConfigError, VerifyError
from .graph.graph_view import GraphView
from .graph.kernel_table import KernelTable
from .graphdef import reading
from .graphdef.apply import apply, sort_nodes
from .graphdef.inlining import Inlined, inline
from .graphdef.outlining import outline
from .graphdef.reversal import require_original
from .graphdef.round_trip import require_same_flat
from .inference.ranges import Ranges
from .ir import graphdef
from .ir.module import Module
from .lint import rules
from .passes import pipeline
from .passes.pipeline import NOBODY, Pass, Pipeline, Promise, Watch
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


@dataclass
class Work:
    """A rewrite on its way: what is given, then what each pass adds, in their order.

    Attributes:
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        asked: the mode, the lists and the kernels.
        flat: the graph with its calls inlined.
        view: what the planner sees of it.
        facts: ranges of its values.
        plan: the decisions.
        touched: positions of the nodes that `apply` has changed.
    """

    feeds: Sequence[str]
    preserved: Sequence[str]
    asked: Asked
    flat: Inlined = field(init=False)
    view: GraphView = field(init=False)
    facts: Ranges = field(init=False)
    plan: Plan = field(init=False)
    touched: Sequence[int] = field(init=False)


def _inline(module: Module, work: Work) -> None:
    work.flat = inline(graphdef.write(module), work.feeds, work.preserved)
    graphdef.replace(module, work.flat.graph_def)


def _read(module: Module, work: Work) -> None:
    flat = graphdef.write(module)
    work.view = reading.read(flat, work.feeds, work.preserved)
    work.facts = Ranges(work.view, flat.node)


def _plan(module: Module, work: Work) -> None:
    asked = work.asked
    warnings, unmatched = asked.warnings + work.flat.warnings, asked.unmatched(work.view)
    planned = plan(
        work.view, asked.table, asked.policy, asked.kernels, asked.overrides, warnings, unmatched, work.facts
    )
    work.plan = _with_warnings(planned, report.nothing_lowered(planned, asked.table))


def _warn(module: Module, work: Work) -> None:
    work.plan = _with_warnings(work.plan, rules.warnings(work.plan, graphdef.write(module).node, work.facts))


def _apply(module: Module, work: Work) -> None:
    result, work.touched = apply(work.plan, graphdef.write(module))
    graphdef.replace(module, result)


def _outline(module: Module, work: Work) -> None:
    flat = graphdef.write(module)
    graphdef.replace(module, outline(work.flat, flat) if work.plan.changed else work.flat.source)


def _changes(work: Work) -> bool:
    """Whether the plan changes something."""
    return work.plan.changed


def _beside_the_plan(before: Any, after: Any, work: Work) -> Sequence[str]:
    """What is not as the plan says, or breaks the contract, in a flat graph read again."""
    try:
        view = reading.reread(work.plan.view, after, work.touched)
        verify(work.plan.view, view, work.asked.kernels, work.plan.emulated(), work.plan)
        require_original(work.plan, before, after, work.touched)
    except ConfigError as error:
        return error.problems
    except VerifyError as error:
        return error.violations
    return ()


def _beside_the_calls(before: Any, after: Any, work: Work) -> Sequence[str]:
    """What is not as in a flat graph once the calls of the outlined one are inlined again."""
    if not work.plan.changed:
        return () if after is work.flat.source else ["the graph has changed, and the plan changes nothing"]
    try:
        require_same_flat(work.flat, before, after)
    except VerifyError as error:
        return error.violations
    return ()


PRECISION = Pipeline(
    "precision",
    "decides the dtype of every type slot of a graph, and inserts Casts",
    (
        Pass("inline", _inline, "first: caller and callee are planned together"),
        Pass("read", _read, "the planner sees immutable values, and no proto"),
        Pass("plan", _plan, "one decision for each type slot, with its reason, and where Casts stand"),
        Pass(
            "warn",
            _warn,
            "what float16 changes by more than rounding is known from the plan alone",
            applies=_changes,
        ),
        Pass(
            "apply",
            _apply,
            "makes the plan's edits, and decides nothing",
            applies=_changes,
            promise=Promise("without the plan's edits it is what it was, and the contract holds", _beside_the_plan),
        ),
        Pass(
            "outline",
            _outline,
            "last: the calls are written back; a graph in which nothing changes is again the given one",
            promise=Promise("inlined again, it is the graph that was verified", _beside_the_calls),
        ),
    ),
    has_promises=True,
)


def rewrite_graph_def(
    graph_def: Any, feeds: Sequence[str], preserved: Sequence[str], asked: Asked, watch: Watch = NOBODY
) -> Rewritten:
    """Runs the passes on a GraphDef.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        asked: the mode, the lists and the kernels.
        watch: who looks on.

    Raises:
        PlanError: an op must run in a dtype that the profile or the op does not have.
        VerifyError: the result breaks the contract.
    """
    start = time.perf_counter()
    with without_collector():
        result, planned = _run(graphdef.opened(graph_def), Work(feeds, preserved, asked), watch)
    return Rewritten(result, planned, time.perf_counter() - start)


def _run(module: Module, work: Work, watch: Watch) -> Tuple[Any, Plan]:
    """The result of the passes, and the plan.

    All else is gone before the collector could look at it.
    """
    pipeline.run(PRECISION, module, work, watch)
    work.view.forget()
    result = graphdef.write(module)
    if work.plan.changed:
        sort_nodes(result)  # nobody uses the module any more
    return result, work.plan


def _with_warnings(planned: Plan, more: Tuple[str, ...]) -> Plan:
    return replace(planned, warnings=planned.warnings + more)
