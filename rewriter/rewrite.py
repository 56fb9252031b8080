"""The rewriter from end to end: a GraphDef is read, planned, edited, verified and written again, in stages.

GraphDef --inline--> flat GraphDef --read--> GraphView --plan--> Plan
flat GraphDef, Plan --apply--> flat result --verify--> ... --outline--> GraphDef
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
from .lint import rules
from .planner import report
from .planner.decisions import Plan
from .planner.overrides import NO_OVERRIDES, Overrides
from .planner.plan import plan
from .planner.verify import verify
from .tables.op_table import OpTable
from .tables.policy import PrecisionPolicy

PURPOSE = "decides the dtype of every type slot of a graph, and inserts Casts"


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
    """A rewrite on its way: what is given, then what each stage adds, in their order.

    Attributes:
        graph_def: GraphDef that is rewritten; it is not changed.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        asked: the mode, the lists and the kernels.
        flat: the graph with its calls inlined.
        view: what the planner sees of it.
        facts: ranges of its values.
        plan: the decisions.
        result: GraphDef of the rewritten graph, flat until it is outlined.
        touched: positions of the nodes that are not as before.
    """

    graph_def: Any
    feeds: Any
    preserved: Any
    asked: Asked
    flat: Inlined = field(init=False)
    view: GraphView = field(init=False)
    facts: Ranges = field(init=False)
    plan: Plan = field(init=False)
    result: Any = field(init=False)
    touched: Sequence[int] = field(init=False)


@dataclass(frozen=True)
class Stage:
    """A step of the rewrite: what one calls it by, the function that does it, and why it stands where it does."""

    name: str
    run: Callable[[Work], None]
    reason: str


def _inline(work: Work) -> None:
    work.flat = inline(work.graph_def, work.feeds, work.preserved)


def _read(work: Work) -> None:
    work.view = reading.read(work.flat.graph_def, work.feeds, work.preserved)
    work.facts = Ranges(work.view, work.flat.graph_def.node)


def _plan(work: Work) -> None:
    asked = work.asked
    warnings, unmatched = asked.warnings + work.flat.warnings, asked.unmatched(work.view)
    planned = plan(
        work.view, asked.table, asked.policy, asked.kernels, asked.overrides, warnings, unmatched, work.facts
    )
    work.plan = _with_warnings(planned, report.nothing_lowered(planned, asked.table))


def _warn(work: Work) -> None:
    work.plan = _with_warnings(work.plan, rules.warnings(work.plan, work.flat.graph_def.node, work.facts))


def _apply(work: Work) -> None:
    work.result, work.touched = apply(work.plan, work.flat.graph_def)


def _check(work: Work) -> None:
    _verify(work.plan, work.flat.graph_def, work.result, work.touched, work.asked.kernels)


def _outline(work: Work) -> None:
    outlined = outline(work.flat, work.result)
    require_same_flat(work.flat, work.result, outlined)
    work.result = outlined
    sort_nodes(work.result)


DECIDE = (
    Stage("inline", _inline, "first: caller and callee are planned together"),
    Stage("read", _read, "the planner sees immutable values, and no proto"),
    Stage("plan", _plan, "one decision for each type slot, with its reason, and where Casts stand"),
)
# only where the plan changes something
EDIT = (
    Stage("warn", _warn, "what float16 changes by more than rounding is known from the plan alone"),
    Stage("apply", _apply, "makes the plan's edits, and decides nothing"),
    Stage("verify", _check, "on the flat graph, read again: the contract holds, or nothing is returned"),
    Stage("outline", _outline, "last: the calls are written back; inlined again, that must give the verified graph"),
)


def rewrite_graph_def(graph_def: Any, feeds: Any, preserved: Any, asked: Asked) -> Rewritten:
    """Runs the stages on a GraphDef.

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
        result, planned = _run(Work(graph_def, feeds, preserved, asked))
    return Rewritten(result, planned, time.perf_counter() - start)


def _run(work: Work) -> Tuple[Any, Plan]:
    """The result of the stages, and the plan; all else is gone before the collector could look at it."""
    work.result = work.graph_def
    for stage in DECIDE:
        stage.run(work)
    for stage in EDIT if work.plan.changed else ():
        stage.run(work)
    work.view.forget()
    return work.result, work.plan


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
