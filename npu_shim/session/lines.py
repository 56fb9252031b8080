"""The line that a session logs about a graph that it is about to run; lines that are logged once."""

import collections
import contextlib
import functools
import logging
import os
import threading
from typing import Any, Iterator, Optional, Sequence

from npu_shim.options.reports import ledger, pages
from npu_shim.rewriter.planner import report
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW, NUMBERS
from npu_shim.rewriter.tables.op_table import OpTable
from npu_shim.rewriter.tables.policy import Action

LOG = logging.getLogger("npu_shim")


def say(done: Any, chosen: Any) -> None:
    """Logs what is to be said about a rewritten graph.

    Args:
        done: `rewriter.rewrite.Rewritten`.
        chosen: the `precision.Precision` that asked for it.
    """
    for text in done.plan.warnings:
        once(text)
    said = line(done.plan, chosen.table, done.seconds)
    _note(done.plan, chosen)
    if said is None:  # no graph that trains, but one that initializes or saves variables
        return
    for text in done.plan.unmatched:
        once(text)
    LOG.info("npu_shim: %s", said)
    if os.environ.get("NPU_SHIM_LOG") == "plan":
        for decision in (*chosen.matched, *report.lowered_lines(done.plan)):
            LOG.info("npu_shim: %s", decision)


def _note(plan: Plan, chosen: Any) -> None:
    """Notes what a plan lowers, or why it lowers nothing though its mode asks for it."""
    if not plan.policy.changes or Action.LOWER not in (plan.policy.white, plan.policy.cube):
        return
    if not pages.computes(plan, chosen):
        return
    decisions = list(plan.decisions())
    is_low = any(decision.becomes in LOW for decision in decisions)
    kinds = (ledger.LOWERED, ledger.LOWERED_IN_TRAINING) if is_low else (ledger.KEPT, ledger.KEPT_IN_TRAINING)
    for kind in kinds if pages.trains(plan.view.nodes) else kinds[:1]:
        ledger.note(kind, "" if is_low else _why_kept(plan, chosen.table, decisions))


def _why_kept(plan: Plan, table: OpTable, decisions: Sequence[Any]) -> str:
    """Why nothing is lowered, in words: that of the most white-listed ops."""
    listed = [d for d in decisions if _is_white(table, d.op)]
    if listed:
        most = collections.Counter(d.reason for d in listed).most_common(1)[0][0]
        first = next(d for d in listed if d.reason is most)
        return "'%s' (%s) stays as written: %s" % (first.node, first.op, most.value)
    wide = next((n for n in plan.view.nodes if _is_white(table, n.op) and NUMBERS["float64"] in n.dtypes), None)
    if wide is None:
        return "its white-listed ops have no float inputs"
    text = "the network computes in float64 ('%s', %s), which no mode lowers: make its data and variables float32"
    return text % (wide.name, wide.op)


def _is_white(table: OpTable, op: str) -> bool:
    return op in table.entries and table.entries[op].listed == "white"


@functools.lru_cache(maxsize=None)
def once(text: str) -> None:
    """Logs a warning, once in a process."""
    LOG.warning("npu_shim: %s", text)


@contextlib.contextmanager
def after(seconds: float, text: str) -> Iterator[None]:
    """Scope that logs a line if it lasts that long, so that a wait does not look like a hang."""
    timer = threading.Timer(seconds, LOG.info, ["npu_shim: %s", text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def line(plan: Plan, table: OpTable, seconds: Optional[float] = None) -> Optional[str]:
    """Returns the line about a planned graph, or None.

    A changed graph has a line, and so has a graph whose white-listed ops are in low precision already; where they stay
    float32, a warning of the plan says so. A graph without such ops, which initializes or saves variables, has none.

    Args:
        plan: the graph's.
        table: the op table that it was planned with.
        seconds: how long the rewrite took.
    """
    counts = report.summary(plan, seconds)
    if counts["lowered"]:
        lowered: str = report.one_line(plan, counts)
        return lowered
    if plan.changed and not _only_runs(plan):
        raised = sum(d.was in LOW and d.becomes == FLOAT32 for d in plan.decisions())
        up = ", %d slots raised to float32" % raised if raised else ""
        changed: str = report.one_line(plan, counts) + up
        return changed
    listed = [d for d in plan.decisions() if _is_white(table, d.op)]
    low = sum(d.was in LOW for d in listed)
    if not low:
        return None
    text = "%s: nothing to lower, %d of %d slots of white-listed ops are written in low precision"
    return text % (plan.policy.name, low, len(listed))


def _only_runs(plan: Plan) -> bool:
    """Whether all dtypes stay as written, and only the way in which low ops run changes."""
    return bool(plan.running.ways) and all(d.was == d.becomes for d in plan.decisions())
